#include "router/frontend/http/pooled_request.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <boost/json.hpp>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <vector>

#include "common/status.h"
#include "router/frontend/http/common_fields.h"
#include "router/frontend/http/json_fields.h"
#include "router/frontend/http/usage_json.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

// Fields of other servers that cut texts short.
void RefuseCuts(JsonFields& fields, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (fields.Any(name) == nullptr) continue;
    fields.Refuse(name, "is not offered: cut the texts before you send them");
  }
}

void TakeIds(JsonFields& fields, const json::array& ids, const std::string& name,
             v1::EmbedRequest& request) {
  v1::TokenIds& tokens = *request.add_input()->mutable_tokens();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = ToInteger(ids[i], kMinInt32, kMaxInt32);
    if (!id) return fields.Refuse(fmt::format("{}[{}]", name, i), "is not a token id");
    tokens.add_ids(static_cast<int32_t>(*id));
  }
}

// A string, an array of token ids, or an array of either.
void ReadInput(JsonFields& fields, v1::EmbedRequest& request) {
  const json::value* const input = fields.Any("input");
  if (input == nullptr) return fields.Refuse("input", "is missing");
  if (input->is_string()) return request.add_input()->set_text(std::string(input->get_string()));
  if (!input->is_array()) {
    return fields.Refuse("input", fmt::format("must be a string, an array of strings, or token "
                                              "ids, not {}",
                                              KindName(*input)));
  }
  const json::array& items = input->get_array();
  if (!items.empty() && items.front().is_number()) return TakeIds(fields, items, "input", request);
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string name = fmt::format("input[{}]", i);
    if (items[i].is_string()) {
      request.add_input()->set_text(std::string(items[i].get_string()));
    } else if (items[i].is_array()) {
      TakeIds(fields, items[i].get_array(), name, request);
    } else {
      return fields.Refuse(
          name, fmt::format("must be a string or token ids, not {}", KindName(items[i])));
    }
  }
}

// Each is a string, or an object with a "text".
void ReadDocuments(JsonFields& fields, v1::RerankRequest& request) {
  const json::array* const documents = fields.Array("documents");
  if (documents == nullptr) return fields.Refuse("documents", "is missing");
  for (size_t i = 0; i < documents->size(); ++i) {
    const json::value& one = (*documents)[i];
    const json::value* const text = one.is_object() ? one.get_object().if_contains("text") : &one;
    if (text == nullptr || !text->is_string()) {
      return fields.Refuse(fmt::format("documents[{}]", i),
                           "must be a string, or an object with a string \"text\"");
    }
    request.add_documents(std::string(text->get_string()));
  }
}

std::string Base64(const v1::Embedding& embedding) {
  const auto n_bytes = static_cast<size_t>(embedding.values_size()) * sizeof(float);
  std::string text(4 * ((n_bytes + 2) / 3) + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<uint8_t*>(text.data()),
                                reinterpret_cast<const uint8_t*>(embedding.values().data()),
                                static_cast<int>(n_bytes));
  text.resize(static_cast<size_t>(n));
  return text;
}

json::object UsageJson(const v1::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens()},
          {"total_tokens", usage.prompt_tokens()},
          {"prompt_tokens_details", CachedJson(usage)}};
}

}  // namespace

absl::StatusOr<EmbeddingsForm> ParseEmbeddings(std::string_view body) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  EmbeddingsForm form;
  ReadCommon(fields, form.request);
  RefuseCuts(fields, {"truncate_prompt_tokens"});
  ReadInput(fields, form.request);
  const std::string format = fields.String("encoding_format").value_or("float");
  form.base64 = format == "base64";
  if (!form.base64 && format != "float") {
    fields.Refuse("encoding_format", "must be \"float\" or \"base64\"");
  }
  if (const auto dimensions = fields.Integer("dimensions", 1, kMaxInt32)) {
    form.request.set_dimensions(static_cast<uint32_t>(*dimensions));
  }
  SC_RETURN_IF_ERROR(fields.status());
  return form;
}

absl::StatusOr<RerankForm> ParseRerank(std::string_view body) {
  SC_ASSIGN_OR_RETURN(const json::object object, ParseObject(body));
  JsonFields fields(object);
  RerankForm form;
  ReadCommon(fields, form.request);
  RefuseCuts(fields, {"truncate_prompt_tokens", "max_tokens_per_doc", "max_chunks_per_doc"});
  const auto query = fields.String("query");
  if (!query) fields.Refuse("query", "is missing");
  form.request.set_query(query.value_or(""));
  ReadDocuments(fields, form.request);
  form.request.set_instruction(fields.String("instruction").value_or(""));
  if (const auto top_n = fields.Integer("top_n", 1, kMaxInt32)) {
    form.top_n = static_cast<size_t>(*top_n);
  }
  form.return_documents = fields.Bool("return_documents").value_or(true);
  SC_RETURN_IF_ERROR(fields.status());
  return form;
}

std::string EmbeddingsJson(const EmbeddingsForm& form, const std::string& model_name,
                           const std::string& request_id, const v1::EmbedResponse& response) {
  // Not built as JSON values, which would take many times the memory of the numbers.
  std::string text = fmt::format(R"({{"id":{},"object":"list","data":[)",
                                 json::serialize(json::string(request_id)));
  auto out = std::back_inserter(text);
  for (int i = 0; i < response.embeddings_size(); ++i) {
    fmt::format_to(out, R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    const v1::Embedding& embedding = response.embeddings(i);
    if (form.base64) {
      fmt::format_to(out, "\"{}\"}}", Base64(embedding));
      continue;
    }
    for (int j = 0; j < embedding.values_size(); ++j) {
      fmt::format_to(out, "{}{}", j > 0 ? ',' : '[', embedding.values(j));
    }
    text += "]}";
  }
  fmt::format_to(out, R"(],"model":{},"usage":{}}})", json::serialize(json::string(model_name)),
                 json::serialize(UsageJson(response.usage())));
  return text;
}

std::string RerankJson(const RerankForm& form, const std::string& model_name,
                       const std::string& request_id, const v1::RerankResponse& response) {
  std::vector<int> order(static_cast<size_t>(response.scores_size()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return response.scores(a) > response.scores(b); });
  if (form.top_n && *form.top_n < order.size()) order.resize(*form.top_n);
  json::array results;
  for (const int i : order) {
    json::object result{{"index", i}, {"relevance_score", response.scores(i)}};
    if (form.return_documents) result["document"] = {{"text", form.request.documents(i)}};
    results.push_back(std::move(result));
  }
  return json::serialize(json::object{{"id", request_id},
                                      {"model", model_name},
                                      {"results", std::move(results)},
                                      {"usage", UsageJson(response.usage())}});
}

}  // namespace stagecoach::router::http
