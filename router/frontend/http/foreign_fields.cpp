#include "router/frontend/http/foreign_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <span>
#include <string>

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

constexpr char kNotOffered[] = "is not offered by this server";

struct Foreign {
  const char* name;
  const char* instead = "";  // hint to add to kNotOffered
  // The number that requests nothing. For other types, false, "", "none", [] and {} request
  // nothing.
  std::optional<double> neutral = std::nullopt;
};

// Fields of both endpoints: vLLM, SGLang, llama.cpp's server, TGI, Ollama, and
// text-generation-webui.
constexpr Foreign kForeign[] = {
    // Structured output.
    {"guided_whitespace_pattern"},
    {"guided_decoding_backend"},
    {"structural_tag"},
    {"ebnf", "write the grammar in Lark, as guided_grammar"},
    {"grammar_triggers"},
    {"grammar_lazy"},
    {"guideline"},
    {"guided_decoding", "use structured_outputs"},
    {"guided_json_object", "use response_format"},
    {"structured_output", "use structured_outputs"},
    {"output_schema", "use response_format"},
    {"response_schema", "use response_format"},
    {"json_mode", "use response_format"},
    {"json_object", "use response_format"},
    {"choice", "use structured_outputs"},
    {"choices", "use structured_outputs"},
    // Lengths.
    {"max_length", "use max_tokens"},
    {"min_length", "use min_tokens"},
    {"min_new_tokens", "use min_tokens"},
    {"min_completion_tokens", "use min_tokens"},
    {"num_return_sequences", "use n", 1},
    {"t_max_predict_ms", "use max_tokens", 0},
    {"max_time", "use max_tokens", 0},
    {"truncate", "shorten the prompt"},
    {"truncate_prompt_tokens", "shorten the prompt"},
    {"truncation_length", "shorten the prompt"},
    {"n_keep", "", 0},
    {"num_keep", "", 0},
    {"num_ctx", "the server's --max-model-len decides"},
    {"thinking_token_budget"},
    {"thinking_budget"},
    {"reasoning_budget", "", -1},
    // Stop conditions.
    {"stop_regex"},
    {"stop_sequences", "use stop"},
    {"stop_strings", "use stop"},
    {"stopping_strings", "use stop"},
    {"custom_stopping_strings", "use stop"},
    {"end_id", "use stop_token_ids"},
    {"eos_token_id", "use stop_token_ids"},
    {"forced_bos_token_id"},
    {"forced_eos_token_id"},
    {"no_stop_trim"},
    {"include_stop_str_in_output"},
    {"ban_eos_token", "use ignore_eos"},
    // Penalties.
    {"repeat_penalty", "use repetition_penalty", 1},
    {"length_penalty", "", 1},
    {"no_repeat_ngram_size", "", 0},
    {"encoder_repetition_penalty", "", 1},
    {"encoder_no_repeat_ngram_size", "", 0},
    {"rep_pen", "use repetition_penalty", 1},
    {"penalty_repeat", "use repetition_penalty", 1},
    {"dry_multiplier", "", 0},
    {"diversity_penalty", "", 0},
    {"guidance_scale", "", 1},
    {"cfg_scale", "", 1},
    {"negative_prompt"},
    // Other sampling methods.
    {"use_beam_search"},
    {"num_beams", "", 1},
    {"num_beam_groups", "", 1},
    {"beam_width", "", 1},
    {"temp", "use temperature"},
    {"topk", "use top_k"},
    {"topp", "use top_p"},
    {"random_seed", "use seed"},
    {"typical_p", "", 1},
    {"typical", "", 1},
    {"tfs_z", "", 1},
    {"tfs", "", 1},
    {"top_a", "", 0},
    {"epsilon_cutoff", "", 0},
    {"eta_cutoff", "", 0},
    {"penalty_alpha", "", 0},
    {"mirostat", "", 0},
    {"mirostat_mode", "", 0},
    {"xtc_probability", "", 0},
    {"dynatemp_range", "", 0},
    {"dynamic_temperature"},
    {"smoothing_factor", "", 0},
    {"temperature_last"},
    {"samplers"},
    {"sampler_order"},
    {"sampler_priority"},
    {"watermark"},
    {"allowed_token_ids", "use logit_bias"},
    {"bad_words", "use logit_bias"},
    {"bad_words_ids", "use logit_bias"},
    {"force_words_ids"},
    {"suppress_tokens", "use logit_bias"},
    {"begin_suppress_tokens", "use logit_bias"},
    {"banned_tokens", "use logit_bias"},
    {"custom_token_bans", "use logit_bias"},
    {"logits_processors"},
    {"logits_processor"},
    {"logit_processors"},
    {"generation_config", "give its fields beside the others"},
    {"custom_logit_processor"},
    {"vllm_xargs"},
    {"custom_params"},
    {"sampling_params", "give its fields beside the others"},
    {"parameters", "give its fields beside the others"},
    {"options", "give its fields beside the others"},
    // Adapters: the server merges only those of its command line.
    {"lora"},
    {"lora_path"},
    {"lora_request"},
    {"adapter_id"},
    {"adapter"},
    {"lora_adapter"},
    {"adapters"},
    // Input.
    {"prompt_embeds"},
    {"input", "use messages, or prompt of /v1/completions"},
    {"inputs", "use messages, or prompt of /v1/completions"},
    {"images"},
    {"image_data"},
    {"multi_modal_data"},
    {"mm_processor_kwargs"},
    {"documents"},
    {"audio"},
    {"web_search_options"},
    {"chat_template", "the server's --chat-template decides"},
    {"functions", "use tools of /v1/chat/completions"},
    {"function_call", "use tool_choice of /v1/chat/completions"},
    // Output.
    {"suffix"},
    {"return_tokens_as_token_ids", "use return_token_ids"},
    {"return_hidden_states"},
    {"return_full_text", "use echo of /v1/completions"},
    {"n_probs", "use logprobs", 0},
    {"top_n_tokens", "use logprobs", 0},
    {"top_logprobs_num", "use logprobs", 0},
    {"token_ids_logprob"},
    {"return_logits"},
};

constexpr Foreign kForeignOfChat[] = {
    {"tool_prompt"},
    {"template", "the server's --chat-template decides"},
    {"plugins"},
    {"thinking_forced_open"},
    {"system", "use a message of the role system"},
    {"instructions", "use a message of the role system"},
    {"prompt", "use messages, or /v1/completions"},
    {"add_special_tokens", "the chat template writes them"},
};

// Chat fields for which false is a request too.
constexpr Foreign kForeignWhateverValue[] = {
    {"thinking", "use enable_thinking, or the template's own variable in chat_template_kwargs"},
    {"think", "use enable_thinking, or the template's own variable in chat_template_kwargs"},
    {"reasoning", "use reasoning_effort, or the template's own variable in chat_template_kwargs"},
};

// Fields for which only false is a request.
constexpr Foreign kForeignWhenFalse[] = {
    {"do_sample", "use temperature: 0"},
    {"include_reasoning"},
};

constexpr Foreign kForeignOfCompletions[] = {
    {"messages", "use /v1/chat/completions"},
    {"tools", "use /v1/chat/completions"},
    {"tool_choice", "use /v1/chat/completions"},
    {"chat_template_kwargs", "use /v1/chat/completions"},
    {"enable_thinking", "use /v1/chat/completions"},
    {"reasoning_effort", "use /v1/chat/completions"},
    {"continue_final_message", "use /v1/chat/completions"},
    {"top_logprobs", "use logprobs, a number here", 0},
    {"system", "put it before the prompt"},
    {"raw"},
    {"template"},
    {"context"},
};

constexpr Foreign kForeignOfMessages[] = {
    {"function_call", "use tool_calls"},
    {"images"},
    {"audio"},
    {"prefix", "use continue_final_message of the request"},
    {"partial", "use continue_final_message of the request"},
};

bool AsksForNothing(const json::value& value, std::optional<double> neutral) {
  switch (value.kind()) {
    case json::kind::bool_:
      return !value.get_bool();
    case json::kind::string:
      return value.get_string().empty() || value.get_string() == "none";
    case json::kind::array:
      return value.get_array().empty();
    case json::kind::object:
      return value.get_object().empty();
    case json::kind::null:
      return true;
    default:
      return neutral && value.to_number<double>() == *neutral;
  }
}

// `asks`: whether the value of a field requests something.
template <typename Asks>
void RefuseWhere(JsonFields& fields, std::span<const Foreign> list, Asks asks) {
  for (const Foreign& foreign : list) {
    const json::value* value = fields.Any(foreign.name);
    if (value == nullptr || !asks(foreign, *value)) continue;
    const std::string_view instead = foreign.instead;
    return fields.Refuse(foreign.name, instead.empty()
                                           ? std::string(kNotOffered)
                                           : fmt::format("{}; {}", kNotOffered, instead));
  }
}

void Refuse(JsonFields& fields, std::span<const Foreign> list) {
  RefuseWhere(fields, list, [](const Foreign& foreign, const json::value& value) {
    return !AsksForNothing(value, foreign.neutral);
  });
}

// OpenAI's list of what the answer has. Without it, the answer is text.
void RefuseOtherModalities(JsonFields& fields) {
  const json::array* const modalities = fields.Array("modalities");
  if (modalities == nullptr) return;
  for (const json::value& modality : *modalities) {
    if (modality == json::value("text")) continue;
    return fields.Refuse("modalities",
                         fmt::format("{} is not supported: this server produces only text",
                                     json::serialize(modality)));
  }
}

}  // namespace

void RefuseForeign(JsonFields& fields, Endpoint endpoint) {
  RefuseWhere(fields, kForeignWhenFalse,
              [](const Foreign&, const json::value& value) { return value == json::value(false); });
  Refuse(fields, kForeign);
  if (endpoint == Endpoint::kChat) {
    RefuseWhere(fields, kForeignWhateverValue,
                [](const Foreign&, const json::value&) { return true; });
    Refuse(fields, kForeignOfChat);
    RefuseOtherModalities(fields);
  } else {
    Refuse(fields, kForeignOfCompletions);
  }
}

void RefuseForeignOfMessage(JsonFields& fields) { Refuse(fields, kForeignOfMessages); }

void RefuseUnknown(JsonFields& fields, const json::object& object,
                   std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object) {
    const std::string_view name(key);
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (!is_known && !AsksForNothing(value, std::nullopt)) return fields.Refuse(name, kNotOffered);
  }
}

}  // namespace stagecoach::router::http
