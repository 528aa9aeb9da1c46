#include "router/frontend/http/grammar_fields.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <utility>

#include "router/frontend/http/foreign_fields.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

class GrammarReader {
 public:
  GrammarReader(JsonFields& fields, v1::SamplingParams& sampling, ApiRequest& request)
      : fields_(fields), sampling_(sampling), request_(request) {}

  void ReadAll() {
    ReadResponseFormat(fields_, "", "response_format");
    ReadForms(fields_, "", {"guided_json", "guided_regex", "guided_choice", "guided_grammar"});
    ReadStructuredOutputs();
    ReadForeignForms();
  }

  // See the function of this name below.
  void ReadResponseFormat(JsonFields& fields, const std::string& outer_path, const char* name) {
    const json::object* format = fields.Object(name);
    if (format == nullptr) return;
    const std::string path = fmt::format("{}{}.", outer_path, name);
    JsonFields inner(*format, path);
    RefuseUnknown(inner, *format,
                  {"type", "json_schema", "schema", "value", "name", "description", "strict"});
    const std::string type = inner.String("type").value_or("");
    const bool has_outer = inner.Any("json_schema") != nullptr;
    if (has_outer && type != "json_schema") {
      inner.Refuse("json_schema", "is allowed only with the type \"json_schema\"");
    } else if (has_outer) {
      const json::object* outer = inner.Object("json_schema");
      if (outer != nullptr) {
        JsonFields schema(*outer, path + "json_schema.");
        if (schema.Any("schema") == nullptr) schema.Refuse("schema", "is missing");
        ReadSchema(schema, path + "json_schema.", "schema");
        inner.Adopt(schema.status());
      }
    } else if (type == "json_object" || type == "json_schema" || type == "json") {
      // The schema next to the type: "schema" in llama.cpp and others, "value" in TGI.
      for (const char* name : {"schema", "value"}) ReadSchema(inner, path, name);
      if (!sampling_.has_grammar() && type == "json_schema") {
        inner.Refuse("json_schema", "is missing");
      } else if (!sampling_.has_grammar()) {
        Begin(fields, outer_path, name)->set_json_object(true);
      }
    } else if (type != "text") {
      inner.Refuse("type", type.empty() ? "is missing"
                                        : fmt::format("'{}' is not offered by this server", type));
    }
    fields.Adopt(inner.status());
  }

 private:
  // The field names for the same forms in one place of the request.
  struct Names {
    const char* json;
    const char* regex;
    const char* choice;
    const char* lark;
  };

  // Returns the grammar for the field `name` of `fields`, which is at `path`, to fill in.
  v1::Grammar* Begin(JsonFields& fields, const std::string& path, const char* name) {
    if (sampling_.has_grammar()) {
      fields.Refuse(name, fmt::format("excludes {}", request_.grammar_field));
    }
    request_.grammar_field = path + name;
    return sampling_.mutable_grammar();
  }

  void ReadStructuredOutputs() {
    const json::object* outputs = fields_.Object("structured_outputs");
    if (outputs == nullptr) return;
    const std::string path = "structured_outputs.";
    JsonFields inner(*outputs, path);
    RefuseUnknown(inner, *outputs,
                  {"json", "regex", "choice", "grammar", "json_object", "disable_any_whitespace",
                   "disable_fallback"});
    ReadForms(inner, path, {"json", "regex", "choice", "grammar"});
    if (inner.Bool("json_object").value_or(false)) {
      Begin(inner, path, "json_object")->set_json_object(true);
    }
    if (const auto compact = inner.Bool("disable_any_whitespace"); compact && !*compact) {
      sampling_.mutable_grammar()->set_any_whitespace(true);
    }
    fields_.Adopt(inner.status());
    if (sampling_.has_grammar() && request_.grammar_field.empty()) {
      fields_.Refuse("structured_outputs",
                     "must contain one of json, regex, choice, grammar and json_object");
    }
  }

  // Reads other servers' names for the same forms: SGLang's, llama.cpp's, Ollama's and TGI's.
  void ReadForeignForms() {
    if (const json::value* schema = fields_.Any("json_schema");
        schema != nullptr && schema->is_object() && schema->get_object().contains("schema")) {
      return fields_.Refuse(
          "json_schema",
          "must be the schema itself; {\"name\", \"schema\"} belongs in response_format");
    }
    ReadSchema(fields_, "", "json_schema");
    if (const auto regex = fields_.String("regex")) {
      Begin(fields_, "", "regex")->set_regex(*regex);
    }
    ReadFormat();
    ReadTypedGrammar();
  }

  // Reads Ollama's `format`: "json", or a schema.
  void ReadFormat() {
    const json::value* format = fields_.Any("format");
    if (format == nullptr) return;
    if (format->is_object()) return ReadSchema(fields_, "", "format");
    const auto word = fields_.String("format");
    if (!word || word->empty()) return;
    if (*word != "json") return fields_.Refuse("format", "must be \"json\" or a JSON Schema");
    Begin(fields_, "", "format")->set_json_object(true);
  }

  // Reads `grammar`: {"type": "json" | "regex", "value"}, or a text. A text may be in one of
  // several languages; only llguidance's identifies itself.
  void ReadTypedGrammar() {
    const json::value* grammar = fields_.Any("grammar");
    if (grammar == nullptr) return;
    if (!grammar->is_object()) {
      const auto text = fields_.String("grammar");
      if (!text || text->empty()) return;
      if (!text->starts_with("%llguidance")) {
        return fields_.Refuse("grammar",
                              "is not offered by this server unless it begins with %llguidance; "
                              "write it in Lark, as guided_grammar");
      }
      Begin(fields_, "", "grammar")->set_lark(*text);
      return;
    }
    JsonFields inner(grammar->get_object(), "grammar.");
    const std::string type = inner.String("type").value_or("");
    if (inner.Any("value") == nullptr) inner.Refuse("value", "is missing");
    if (type == "json") {
      ReadSchema(inner, "grammar.", "value");
    } else if (type == "regex") {
      const auto regex = inner.String("value");
      if (regex) Begin(inner, "grammar.", "value")->set_regex(*regex);
    } else {
      inner.Refuse("type", "must be \"json\" or \"regex\"");
    }
    fields_.Adopt(inner.status());
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

  // Reads a schema: an object, or its text.
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

void ReadResponseFormat(JsonFields& fields, const std::string& path, const char* name,
                        v1::SamplingParams& sampling, ApiRequest& request) {
  GrammarReader(fields, sampling, request).ReadResponseFormat(fields, path, name);
}

}  // namespace stagecoach::router::http
