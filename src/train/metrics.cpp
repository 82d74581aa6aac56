#include "train/metrics.h"

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/json.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

Json layers_to_json(const std::vector<LayerRouting>& layers) {
  Json list = Json::array();
  for (const LayerRouting& l : layers) list.push_back(to_json(l));
  return list;
}

void add_agreement(Json& json, const Agreement& agreement) {
  if (agreement.rows == 0) return;
  json["accuracy"] = agreement.accuracy();
  json["precision"] = agreement.precision();
  json["recall"] = agreement.recall();
  json["base_rate"] = agreement.base_rate();
  json["causal_share"] = agreement.share();
}

Json experts_to_json(const std::vector<LayerExperts>& layers) {
  Json list = Json::array();
  for (const LayerExperts& l : layers) list.push_back(to_json(l));
  return list;
}

Json parse_record(const std::string& line) {
  try {
    return parse_json(line, "a record");
  } catch (const Error&) {
    return {};
  }
}

// The lines up to a step; a last line cut short by a kill is dropped with the later ones. An evaluation at that very
// step is made again by the resumed run.
std::string kept_lines(const fs::path& path, int64_t step) {
  std::string kept, text;
  std::istringstream lines(read_file(path));
  while (std::getline(lines, text)) {
    Json json = parse_record(text);
    if (!json.is_object() || !json["step"].is_number_integer()) continue;
    const int64_t at = json["step"];
    if ((json["event"] == "step" && at <= step) || (json["event"] == "eval" && at < step)) kept += text + '\n';
  }
  return kept;
}

}  // namespace

Json to_json(const LayerRouting& l) {
  Json json{{"block", l.section.block}, {"share", l.share()}};
  if (l.section.part != Part::kBlock) json["part"] = name_of(l.section.part);
  if (l.dropped > 0) json["dropped"] = l.dropped;
  add_agreement(json, l.agreement);
  return json;
}

Json to_json(const LayerExperts& l) {
  Json json{{"block", l.block}, {"rows", l.rows}, {"dropped", l.dropped}, {"no_ops", l.no_ops}};
  for (size_t e = 0; e < l.expert_rows.size(); e++) json["shares"].push_back(l.share(e));
  add_agreement(json, l.agreement);
  return json;
}

Json to_json(const Evaluation& e) {
  Json json{{"loss", e.loss},
            {"entropy", e.entropy},
            {"targets", e.targets},
            {"windows", e.windows},
            {"layers", layers_to_json(e.layer)}};
  if (!e.experts.empty()) json["experts"] = experts_to_json(e.experts);
  return json;
}

Metrics::Metrics(const fs::path& out, int64_t resumed_step) : path_(out / "metrics.jsonl") {
  const bool again = resumed_step > 0 && fs::exists(path_);
  replace_file(path_, again ? kept_lines(path_, resumed_step) : "");
  file_ = std::fopen(path_.c_str(), "a");
  if (file_ == nullptr) fail_work("cannot write {}: {}", path_.string(), std::strerror(errno));
}

Metrics::~Metrics() {
  if (file_ != nullptr) std::fclose(file_);
}

void Metrics::line(const Json& record) {
  const std::string text = record.dump() + '\n';
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    fail_work("cannot write {}: {}", path_.string(), std::strerror(errno));
}

void Metrics::write(const StepRecord& r) {
  Json json{{"event", "step"},
            {"step", r.step},
            {"loss", r.loss},
            {"auxiliary", r.auxiliary},
            {"z_loss", r.z_loss},
            {"gradient_norm", r.norm.model},
            {"predictor_norm", r.norm.predictor},
            {"learning_rate", r.learning_rate},
            {"tokens", r.tokens},
            {"flops", r.flops},
            {"step_ms", r.step_ms},
            {"tokens_per_s", r.tokens_per_s},
            {"peak_share", r.peak_share},
            {"layers", layers_to_json(r.layer)}};
  if (!r.experts.empty()) {
    json["expert_loss"] = r.expert_loss;
    json["experts"] = experts_to_json(r.experts);
  }
  line(json);
}

void Metrics::write(const EvalRecord& r) {
  Json record{{"event", "eval"}, {"step", r.step}, {"top_k", to_json(r.top_k)}};
  if (r.causal) record["causal"] = to_json(*r.causal);
  line(record);
}

void Metrics::end(int64_t step, bool interrupted) {
  line({{"event", "end"}, {"step", step}, {"status", interrupted ? "interrupted" : "done"}});
}

}  // namespace isobath
