#include "router/frontend/http/grammar_fields.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <utility>

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

class GrammarReader {
 public:
  GrammarReader(JsonFields& fields, v1::SamplingParams& sampling, ApiRequest& request)
      : fields_(fields), sampling_(sampling), request_(request) {}

  void ReadAll() {
    ReadResponseFormat();
    ReadForms(fields_, "", {"guided_json", "guided_regex", "guided_choice", "guided_grammar"});
    ReadStructuredOutputs();
  }

 private:
  // The same forms under the names that they have in one place.
  struct Names {
    const char* json;
    const char* regex;
    const char* choice;
    const char* lark;
  };

  // The grammar that the field `name` of `fields`, which is at `path`, is to fill in.
  v1::Grammar* Begin(JsonFields& fields, const std::string& path, const char* name) {
    if (sampling_.has_grammar()) {
      fields.Refuse(name, fmt::format("excludes {}", request_.grammar_field));
    }
    request_.grammar_field = path + name;
    return sampling_.mutable_grammar();
  }

  void ReadResponseFormat() {
    const json::object* format = fields_.Object("response_format");
    if (format == nullptr) return;
    const std::string path = "response_format.";
    JsonFields inner(*format, path);
    const std::string type = inner.String("type").value_or("");
    if (type == "json_object") {
      Begin(fields_, "", "response_format")->set_json_object(true);
    } else if (type == "json_schema") {
      const json::object* outer = inner.Object("json_schema");
      if (outer == nullptr) inner.Refuse("json_schema", "is missing");
      if (outer != nullptr) {
        JsonFields schema(*outer, path + "json_schema.");
        if (schema.Any("schema") == nullptr) schema.Refuse("schema", "is missing");
        ReadSchema(schema, path + "json_schema.", "schema");
        inner.Adopt(schema.status());
      }
    } else if (type != "text") {
      inner.Refuse("type", type.empty() ? "is missing"
                                        : fmt::format("'{}' is not offered by this server", type));
    }
    fields_.Adopt(inner.status());
  }

  void ReadStructuredOutputs() {
    const json::object* outputs = fields_.Object("structured_outputs");
    if (outputs == nullptr) return;
    const std::string path = "structured_outputs.";
    JsonFields inner(*outputs, path);
    ReadForms(inner, path, {"json", "regex", "choice", "grammar"});
    if (inner.Bool("json_object").value_or(false)) {
      Begin(inner, path, "json_object")->set_json_object(true);
    }
    if (const auto compact = inner.Bool("disable_any_whitespace"); compact && !*compact) {
      sampling_.mutable_grammar()->set_any_whitespace(true);
    }
    for (const char* name : {"whitespace_pattern", "structural_tag"}) {
      if (inner.Any(name) != nullptr) inner.Refuse(name, "is not offered by this server");
    }
    fields_.Adopt(inner.status());
    if (sampling_.has_grammar() && request_.grammar_field.empty()) {
      fields_.Refuse("structured_outputs", "names no form");
    }
  }

  void ReadForms(JsonFields& fields, const std::string& path, const Names& names) {
    ReadSchema(fields, path, names.json);
    if (const auto regex = fields.String(names.regex)) {
      Begin(fields, path, names.regex)->set_regex(*regex);
    }
    if (const json::array* texts = fields.Array(names.choice)) {
      v1::GrammarChoice& choice = *Begin(fields, path, names.choice)->mutable_choice();
      for (size_t i = 0; i < texts->size(); ++i) {
        if (!(*texts)[i].is_string()) {
          return fields.Refuse(fmt::format("{}[{}]", names.choice, i), "must be a string");
        }
        choice.add_texts(std::string((*texts)[i].get_string()));
      }
    }
    if (const auto lark = fields.String(names.lark)) {
      Begin(fields, path, names.lark)->set_lark(*lark);
    }
  }

  // An object, or its text.
  void ReadSchema(JsonFields& fields, const std::string& path, const char* name) {
    const json::value* schema = fields.Any(name);
    if (schema == nullptr) return;
    if (!schema->is_object() && !schema->is_bool() && !schema->is_string()) {
      return fields.Refuse(name, fmt::format("must be a JSON Schema, not {}", KindName(*schema)));
    }
    Begin(fields, path, name)
        ->set_json_schema(schema->is_string() ? std::string(schema->get_string())
                                              : json::serialize(*schema));
  }

  JsonFields& fields_;
  v1::SamplingParams& sampling_;
  ApiRequest& request_;
};

}  // namespace

void ReadGrammar(JsonFields& fields, v1::SamplingParams& sampling, ApiRequest& request) {
  GrammarReader(fields, sampling, request).ReadAll();
}

}  // namespace stagecoach::router::http
