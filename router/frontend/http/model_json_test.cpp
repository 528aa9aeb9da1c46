#include "router/frontend/http/model_json.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

TEST_CASE("/status tells of recoveries: one in progress has a phase, others say what was kept") {
  ServerState state{.word = "recovering", .reason = "stage 0 is lost"};
  state.recoveries = {{.stage = 1,
                       .reason = "stage 1 is lost",
                       .began = std::chrono::system_clock::time_point(std::chrono::seconds(5)),
                       .lasted = std::chrono::milliseconds(250),
                       .kv_kept = true},
                      {.replica = 2, .reason = "the router lost it", .phase = "load"}};
  const json::value status = json::parse(StatusJson(v1::Model(), {}, state));
  CHECK(status.at("state") == "recovering");
  CHECK(status.at("reason") == "stage 0 is lost");
  CHECK(status.at("recoveries") ==
        json::parse(R"([{"replica": 0, "stage": 1, "reason": "stage 1 is lost", "began": 5.0,
                         "seconds": 0.25, "phase": null, "kv_kept": true},
                        {"replica": 2, "stage": null, "reason": "the router lost it", "began": 0.0,
                         "seconds": 0.0, "phase": "load", "kv_kept": null}])"));
}

TEST_CASE("/status of a server that serves") {
  const json::value status = json::parse(StatusJson(v1::Model(), {}, {}));
  CHECK(status.at("state") == "ready");
  CHECK(status.at("reason") == "");
  CHECK(status.at("recoveries").as_array().empty());
}

}  // namespace
}  // namespace stagecoach::router::http
