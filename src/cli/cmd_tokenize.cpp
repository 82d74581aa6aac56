#include <cstdio>
#include <optional>

#include "base/error.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "text/corpus.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string path, tokenizer = "bytes", out;
  std::optional<std::string> text;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath tokenize --path books/ --tokenizer llama-folder --out books.tokens   a shard, read much faster\n"
    "  isobath tokenize --tokenizer gpt2/ --text 'hello world'                      show ids";

// The whole of a stream: what a shard holds.
struct Whole {
  std::vector<int32_t> tokens;
  std::vector<int64_t> begin;
};
Whole whole_of(const TokenStream& stream) {
  Whole whole;
  whole.tokens.resize(size_t(stream.size()));
  stream.read(0, whole.tokens);
  for (int64_t d = 0; d <= stream.documents(); d++) whole.begin.push_back(stream.document_begin(d));
  return whole;
}

void write(const fs::path& path, const TokenStream& stream, const Tokenizer& tokenizer) {
  const Whole whole = whole_of(stream);
  write_shard(path, whole.tokens, whole.begin, tokenizer, stream.text_bytes());
  std::printf("%s: %s tokens, %lld documents\n", path.c_str(), with_letter(double(stream.size())).c_str(),
              static_cast<long long>(stream.documents()));
}

// books.tokens and books name books.train.tokens; books.v1 names books.v1.train.tokens.
std::string shard_name(const fs::path& out) {
  const std::string name = (out.extension() == ".tokens" ? out.stem() : out.filename()).string();
  std::error_code ignored;
  require(
      !name.empty() && name != "." && name != ".." && !fs::is_directory(out, ignored),
      "--out {} is a folder, expected the name of a file in it: NAME.train.tokens and NAME.valid.tokens are written",
      out.string());
  return name;
}

int run_tokenize(const Arguments& a) {
  const Tokenizer tokenizer = Tokenizer::load(a.tokenizer);
  if (a.text) {
    std::string ids;
    for (const int32_t id : tokenizer.encode(*a.text)) ids += fmt::format("{}{}", ids.empty() ? "" : " ", id);
    std::printf("%s\n", ids.c_str());
    return 0;
  }
  require(!a.path.empty() && !a.out.empty(), "nothing to do: give --path and --out, or --text");
  const fs::path out = a.out;
  const std::string name = shard_name(out);
  require_writable(parent_folder(out));
  const Corpus corpus = Corpus::load(a.path, tokenizer);
  write(out.parent_path() / (name + ".train.tokens"), corpus.train, tokenizer);
  write(out.parent_path() / (name + ".valid.tokens"), corpus.valid, tokenizer);
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token shards, or show a text's ids");
  command->footer(kFooter);
  CLI::Option* path = command->add_option("--path", a->path, "text: .txt, .jsonl, token shards, or a folder of these");
  command->add_option("--tokenizer", a->tokenizer, "bytes, a tokenizer.json, or a folder that holds one")
      ->capture_default_str();
  CLI::Option* out =
      command->add_option("--out", a->out, "NAME.tokens: NAME.train.tokens and NAME.valid.tokens are written");
  command->add_option("--text", a->text, "show the ids of this text instead")->excludes(path)->excludes(out);
  command->callback([a, &run] { run = [a] { return run_tokenize(*a); }; });
}

}  // namespace isobath::cli
