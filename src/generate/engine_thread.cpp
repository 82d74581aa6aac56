#include "generate/engine_thread.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"

namespace isobath {

std::optional<std::string> Answer::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !text_.empty() || finished_; });
  if (!text_.empty()) return std::exchange(text_, {});
  if (!error_.empty()) fail_work("{}", error_);
  return std::nullopt;
}

const Result& Answer::result() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_; });
  if (!error_.empty()) fail_work("{}", error_);
  return result_;  // nobody writes it any more
}

bool Answer::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void Answer::add(std::string_view piece) {
  const std::lock_guard lock(mutex_);
  text_ += piece;
  changed_.notify_all();
}

void Answer::finish(const Result& result) {
  const std::lock_guard lock(mutex_);
  result_ = result;
  finished_ = true;
  changed_.notify_all();
}

void Answer::fail(const std::string& message) {
  const std::lock_guard lock(mutex_);
  error_ = message;
  finished_ = true;
  changed_.notify_all();
}

EngineThread::EngineThread(const Model& model, const Tokenizer& tokenizer, const EngineOptions& options)
    : engine_(model, tokenizer, options), statistics_(engine_.statistics()) {
  thread_ = std::thread([this, threads = thread_count()] {
    set_thread_count(threads);  // OpenMP keeps it per thread
    loop();
  });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  room_.notify_all();
  thread_.join();
}

std::shared_ptr<Answer> EngineThread::submit(Request request, WhenFull when_full) {
  engine_.fits(request);
  auto answer = std::make_shared<Answer>();
  std::unique_lock lock(mutex_);
  if (when_full == WhenFull::kWait) room_.wait(lock, [&] { return stopping_ || !full(); });
  if (stopping_ || full()) return nullptr;
  inbox_.push_back({std::move(request), answer});
  open_++;
  work_.notify_all();
  return answer;
}

Statistics EngineThread::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

int64_t EngineThread::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

void EngineThread::loop() {
  try {
    while (wait_for_work()) {
      take_in();
      cancel_some(false);
      engine_.step();
      publish();
    }
    cancel_some(true);
    publish();
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

// False: the end.
bool EngineThread::wait_for_work() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return stopping_ || !inbox_.empty() || !engine_.idle(); });
  return !stopping_;
}

// From the inbox into the engine, while its own queue has room: requests that gave way stand there too.
void EngineThread::take_in() {
  const std::lock_guard lock(mutex_);
  while (!inbox_.empty() && engine_.waiting() < engine_.options().queue) {
    const std::shared_ptr<Answer> answer = inbox_.front().answer;
    const Listener listener{.on_text = [answer](std::string_view piece) { answer->add(piece); },
                            .on_finish = [answer](const Result& result) { answer->finish(result); }};
    live_.push_back({*engine_.submit(std::move(inbox_.front().request), listener), answer});
    inbox_.pop_front();
  }
  waiting_ = engine_.waiting();
}

void EngineThread::cancel_some(bool all) {
  for (const Live& live : live_)
    if (all || live.answer->cancelled_) engine_.cancel(live.id);
  if (!all) return;
  const std::lock_guard lock(mutex_);
  for (const Incoming& incoming : inbox_) incoming.answer->finish({.finish = Finish::kCancelled});
  inbox_.clear();
}

void EngineThread::publish() {
  std::erase_if(live_, [](const Live& live) { return live.answer->finished(); });
  {
    const std::lock_guard lock(mutex_);
    waiting_ = engine_.waiting();
    open_ = int64_t(live_.size() + inbox_.size());
    statistics_ = engine_.statistics();
  }
  room_.notify_all();
}

// The engine cannot go on: everybody who waits is told why.
void EngineThread::fail(const std::string& message) {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (const Live& live : live_)
    if (!live.answer->finished()) live.answer->fail(message);
  for (const Incoming& incoming : inbox_) incoming.answer->fail(message);
  live_.clear();
  inbox_.clear();
  open_ = 0;
  room_.notify_all();
}

}  // namespace isobath
