#include "worker/stage/sample_params.h"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

#include "common/number_fields.h"

namespace stagecoach::worker {
namespace {

TEST_CASE("every sampling parameter of the router reaches the kernels, bit for bit") {
  // Numbers that do not shape the distribution.
  const std::set<std::string> others = {"n_logprobs", "n_prompt_logprobs"};
  v1::SlotSampling sampling;
  std::set<std::string> sent;
  const auto* const descriptor = v1::SlotSampling::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* const field = descriptor->field(i);
    const bool is_number =
        field->cpp_type() == field->CPPTYPE_FLOAT || field->cpp_type() == field->CPPTYPE_INT32;
    const std::string name(field->name());
    if (!is_number || field->is_repeated() || others.contains(name)) continue;
    SetNumber(sampling, name, field->cpp_type() == field->CPPTYPE_INT32 ? 1000 + i : 0.1 + i);
    sent.insert(name);
  }
  const kernels::SampleParams params = ToSampleParams(sampling);
  std::set<std::string> read;
  kernels::SampleParams::ForEach(params, [&](const char* name, auto value) {
    INFO(name);
    CHECK(static_cast<double>(value) == GetNumber(sampling, name));
    read.insert(name);
  });
  CHECK(read == sent);
  CHECK(params.min_p == sampling.min_p());
  CHECK(params.top_k == sampling.top_k());
}

}  // namespace
}  // namespace stagecoach::worker
