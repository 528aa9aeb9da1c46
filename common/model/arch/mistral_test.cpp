#include <catch2/catch_approx.hpp>
#include <cmath>

#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Mistral: window, no window, and the default of a missing key") {
  const auto window = [](std::string_view more) {
    return MustRead(Config("MistralForCausalLM",
                           std::string(R"("num_key_value_heads": 2,)") + std::string(more)))
        .kv_groups.at(0)
        .window.size;
  };
  CHECK(window(R"("sliding_window": 16,)") == 16);
  CHECK(window(R"("sliding_window": null,)") == 0);
  CHECK(window(R"("sliding_window": 512,)") == 0);  // all positions
  CHECK(window("") == 0);                           // 4096, above 512
  const ModelSpec spec =
      MustRead(Config("MistralForCausalLM", R"("head_dim": 64, "num_key_value_heads": 2,)"));
  CHECK(spec.head_dim == 64);
}

TEST_CASE("Ministral 3, as published: served as text") {
  const ModelSpec spec = *ReadShape("ministral-3-8b");
  CHECK(spec.architecture == "Mistral3ForConditionalGeneration");
  REQUIRE(spec.notes.size() == 1);
  CHECK_THAT(spec.notes[0], ContainsSubstring("served as a text model"));
  CHECK(spec.query_scaling.beta == 0.1f);
  CHECK(spec.query_scaling.step == 16384);
  CHECK(spec.query_scaling.At(16383) == 1);
  CHECK(spec.query_scaling.At(16384) == Approx(1 + 0.1 * std::log(2.0)));
  CHECK(spec.ropes[0].scaling == RopeScaling::kYarn);
  CHECK(spec.ropes[0].attention_factor == Approx(1));
  CHECK((*ReadShape("ministral-3-14b")).hidden_size == 5120);
  CHECK_THAT(ErrorOf(Config("Ministral3ForCausalLM", R"("num_key_value_heads": 4,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("rope_parameters"));
}

TEST_CASE("Mistral Small with a vision tower: Mistral's layers") {
  const ModelSpec spec = *Read(R"({"architectures": ["Mistral3ForConditionalGeneration"],
    "text_config": {"model_type": "mistral", "vocab_size": 512, "hidden_size": 128, "head_dim": 32,
                    "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "max_position_embeddings": 512}})");
  CHECK(spec.query_scaling.beta == 0);
  CHECK(spec.n_kv_heads == 2);
}

}  // namespace
}  // namespace stagecoach
