// An engine on a thread of its own, for programs with many: requests from any thread, answers read by any thread.
//
//   EngineThread engine(*loaded.model, loaded.tokenizer, {.sequences = 16});
//   const std::shared_ptr<Answer> answer = engine.submit({.prompt = prompt}, WhenFull::kWait);
//   while (const std::optional<std::string> piece = answer->next()) std::cout << *piece;
//   answer->result().finish
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "generate/engine.h"

namespace isobath {

// The answer to one request. It may outlive the engine.
class Answer {
 public:
  // Waits for more text; none once all has been given. Throws Error if the engine failed.
  std::optional<std::string> next();
  // Waits for the end. Throws Error if the engine failed. Text that was not read stays readable.
  const Result& result();
  bool finished() const;
  void cancel() { cancelled_ = true; }  // ends soon, with what is there

 private:
  friend class EngineThread;
  void add(std::string_view piece);
  void finish(const Result& result);
  void fail(const std::string& message);
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::string text_;  // that nobody read yet
  bool finished_ = false;
  std::string error_;
  Result result_;
};

enum class WhenFull : uint8_t { kRefuse, kWait };

class EngineThread {
 public:
  // As Engine, whose bounded queue is that of all threads together. Uses as many threads as the one that makes it.
  EngineThread(const Model& model, const Tokenizer& tokenizer, const EngineOptions& options);
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  ~EngineThread();  // cancels what is not finished

  // Null if the queue is full and the caller does not wait, or if the engine stopped. Throws Error as Engine::submit.
  std::shared_ptr<Answer> submit(Request request, WhenFull when_full = WhenFull::kRefuse);
  Statistics statistics() const;  // as of the last step
  // Requests that are not finished.
  int64_t open() const;

 private:
  struct Incoming {
    Request request;
    std::shared_ptr<Answer> answer;
  };
  struct Live {
    int64_t id;
    std::shared_ptr<Answer> answer;
  };
  void loop();
  bool wait_for_work();
  void take_in();
  void cancel_some(bool all);
  void publish();
  void fail(const std::string& message);
  bool full() const { return int64_t(inbox_.size()) + waiting_ >= engine_.options().queue; }

  Engine engine_;           // of the thread alone, but for options and fits()
  std::vector<Live> live_;  // of the thread alone
  mutable std::mutex mutex_;
  std::condition_variable work_, room_;
  std::deque<Incoming> inbox_;
  int64_t waiting_ = 0, open_ = 0;
  bool stopping_ = false;
  Statistics statistics_;
  std::thread thread_;  // last: what it uses is there before it
};

}  // namespace isobath
