#include "router/frontend/http/model_json.h"

#include <boost/json.hpp>
#include <chrono>
#include <map>
#include <string>
#include <utility>

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

json::object Entry(const ServedModel& model, int64_t created_unix_s) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", created_unix_s},
          {"owned_by", "stagecoach"},
          {"root", model.name},
          {"parent", nullptr},
          {"max_model_len", model.max_model_len}};
}

json::object RecoveryJson(const Recovery& recovery) {
  const auto began = std::chrono::duration<double>(recovery.began.time_since_epoch());
  const bool is_over = recovery.phase.empty();
  return {{"replica", recovery.replica},
          {"stage", recovery.stage ? json::value(*recovery.stage) : nullptr},
          {"reason", recovery.reason},
          {"began", began.count()},
          {"seconds", recovery.lasted.count()},
          {"phase", is_over ? nullptr : json::value(recovery.phase)},
          {"kv_kept", is_over ? json::value(recovery.kv_kept) : nullptr}};
}

}  // namespace

std::string ModelJson(const ServedModel& model, int64_t created_unix_s) {
  return json::serialize(Entry(model, created_unix_s));
}

std::string ModelListJson(const ServedModel& model, int64_t created_unix_s) {
  return json::serialize(
      json::object{{"object", "list"}, {"data", json::array{Entry(model, created_unix_s)}}});
}

std::string StatusJson(const v1::Model& model, const std::vector<std::optional<double>>& compute_ms,
                       const ServerState& state) {
  json::array stages;
  for (const v1::StageStatus& stage : model.stages()) {
    const size_t i = stages.size();
    const bool known = i < compute_ms.size() && compute_ms[i].has_value();
    const std::map<std::string, uint64_t> weights(stage.weights().begin(), stage.weights().end());
    stages.push_back(json::object{{"replica", stage.replica()},
                                  {"address", stage.address()},
                                  {"device", stage.device()},
                                  {"first_layer", stage.first_layer()},
                                  {"n_layers", stage.n_layers()},
                                  {"weights", json::value_from(weights)},
                                  {"stalled", stage.stalled()},
                                  {"compute_ms", known ? json::value(*compute_ms[i]) : nullptr}});
  }
  json::array groups;
  for (const v1::KvGroupStatus& group : model.kv().groups()) {
    groups.push_back(json::object{{"window", group.window()},
                                  {"total_blocks", group.total_blocks()},
                                  {"free_blocks", group.free_blocks()}});
  }
  json::array recoveries;
  for (const Recovery& recovery : state.recoveries) recoveries.push_back(RecoveryJson(recovery));
  const v1::SchedulerStatus& scheduler = model.scheduler();
  return json::serialize(json::object{
      {"model", model.id()},
      {"architecture", model.architecture()},
      {"dtype", model.dtype()},
      {"kv_dtype", model.kv_dtype()},
      {"hidden_dtype", model.hidden_dtype()},
      {"max_model_len", model.max_model_len()},
      {"has_chat_template", model.has_chat_template()},
      {"state", state.word},
      {"reason", state.reason},
      {"recoveries", std::move(recoveries)},
      {"stages", std::move(stages)},
      {"kv",
       json::object{{"block_tokens", model.kv().block_tokens()}, {"groups", std::move(groups)}}},
      {"scheduler", json::object{{"running", scheduler.running()},
                                 {"waiting", scheduler.waiting()},
                                 {"microbatches_in_flight", scheduler.microbatches_in_flight()},
                                 {"steps", scheduler.steps()},
                                 {"in_flight_ms", scheduler.in_flight_ms()},
                                 {"preemptions", scheduler.preemptions()}}}});
}

}  // namespace stagecoach::router::http
