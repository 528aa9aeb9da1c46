// Compares tokenizers and chat templates with the reference libraries' results for real
// checkpoints.
//
//   text_golden_check GOLDEN.json [MODEL_DIR...]
//
// For tokenizers, GOLDEN.json is {"cases": [{"text", "ids", "ids_special", "ids_plain"?,
// "decoded"?, "decoded_skip"?}]}. Defaults: ids_plain is ids, decoded is text, and decoded_skip is
// decoded. For a template it is {"name", "template", "cases": [{"name", "ctx", "expected" or
// "error" and "error_kind"}]}. The text of an error that the template does not raise itself may
// differ. Exits with 1 if anything differs.
#include <fmt/core.h>

#include <boost/json.hpp>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/text/chat_template.h"
#include "common/text/token_stream.h"
#include "common/text/tokenizer.h"

namespace stagecoach::text {
namespace {

namespace json = boost::json;

struct Tally {
  int n_equal = 0;
  int n_total = 0;
  void Add(bool equal, std::string_view what, std::string_view text) {
    ++n_total;
    n_equal += equal;
    if (!equal) fmt::print("  differs: {} of {}\n", what, json::serialize(json::string(text)));
  }
};

std::vector<int32_t> Ids(const json::value& value) {
  return json::value_to<std::vector<int32_t>>(value);
}

std::string Stream(const std::shared_ptr<const Tokenizer>& tokenizer, std::span<const int32_t> ids,
                   bool skip_special_tokens) {
  TokenStream stream(tokenizer, skip_special_tokens);
  std::string out;
  for (int32_t id : ids) out += stream.Push(id);
  return out + stream.Flush();
}

void CheckText(const std::shared_ptr<const Tokenizer>& tokenizer, const json::object& test,
               Tally& tally) {
  const std::string text(test.at("text").as_string());
  const auto ids = Ids(test.at("ids"));
  const auto plain_ids = test.contains("ids_plain") ? Ids(test.at("ids_plain")) : ids;
  const auto get = [&](const char* key, const std::string& otherwise) {
    return test.contains(key) ? std::string(test.at(key).as_string()) : otherwise;
  };
  const std::string decoded = get("decoded", text);
  const std::string skipped = get("decoded_skip", decoded);
  const std::vector<TextRange> all = {{0, text.size()}};
  tally.Add(tokenizer->Encode(text, false).value() == ids, "ids", text);
  tally.Add(tokenizer->Encode(text, true).value() == Ids(test.at("ids_special")), "ids_special",
            text);
  tally.Add(tokenizer->EncodeRendered(text, {}).value() == ids, "rendered ids", text);
  tally.Add(tokenizer->EncodeRendered(text, all).value() == plain_ids, "plain ids", text);
  tally.Add(tokenizer->Decode(ids, false).value() == decoded, "decoded", text);
  tally.Add(tokenizer->Decode(ids, true).value() == skipped, "decoded_skip", text);
  tally.Add(Stream(tokenizer, ids, false) == decoded, "streamed", text);
  tally.Add(Stream(tokenizer, ids, true) == skipped, "streamed, special skipped", text);
}

void CheckRandom(const std::shared_ptr<const Tokenizer>& tokenizer, Tally& tally) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    std::vector<int32_t> ids(1 + random() % 24);
    // Half of the sequences use only low ids, where byte tokens and single bytes are.
    const uint32_t n_ids = i % 2 == 0 ? tokenizer->vocab_size() : 600;
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % n_ids);
    const bool skip = i % 3 == 0;
    tally.Add(Stream(tokenizer, ids, skip) == tokenizer->Decode(ids, skip).value(), "random ids",
              json::serialize(json::value_from(ids)));
  }
}

int CheckTokenizers(const json::value& golden, std::span<char*> model_dirs) {
  bool equal = true;
  for (const char* model_dir : model_dirs) {
    auto tokenizer = Tokenizer::Load(model_dir);
    if (!tokenizer.ok()) {
      fmt::print(stderr, "{}\n", tokenizer.status().ToString());
      return 1;
    }
    Tally texts;
    for (const json::value& test : golden.at("cases").as_array()) {
      CheckText(*tokenizer, test.as_object(), texts);
    }
    Tally random;
    CheckRandom(*tokenizer, random);
    fmt::print("{}: {} of {} text checks, {} of {} random sequences equal\n", model_dir,
               texts.n_equal, texts.n_total, random.n_equal, random.n_total);
    equal = equal && texts.n_equal == texts.n_total && random.n_equal == random.n_total;
  }
  return equal ? 0 : 1;
}

// The context of a case has messages, tools, add_generation_prompt and further variables.
absl::StatusOr<ChatTemplate::Rendered> RenderCase(const ChatTemplate& chat_template,
                                                  json::object context) {
  const auto take = [&](const char* key) {
    const json::value value = context.at(key);
    context.erase(key);
    return value;
  };
  ChatTemplate::Options options;
  const std::string messages = json::serialize(take("messages"));
  const json::value tools = take("tools");
  options.add_generation_prompt = take("add_generation_prompt").as_bool();
  if (context.contains("__now_unix")) options.now_unix_s = take("__now_unix").to_number<int64_t>();
  options.kwargs_json = json::serialize(context);
  return chat_template.Render(messages, tools.is_null() ? "" : json::serialize(tools), options);
}

int CheckTemplate(const json::value& golden) {
  auto chat_template = ChatTemplate::FromSource(golden.at("template").as_string());
  if (!chat_template.ok()) {
    fmt::print(stderr, "{}\n", chat_template.status().ToString());
    return 1;
  }
  Tally tally;
  int n_python_errors = 0;
  for (const json::value& value : golden.at("cases").as_array()) {
    const json::object& test = value.as_object();
    const auto rendered = RenderCase(**chat_template, test.at("ctx").as_object());
    const std::string name(test.at("name").as_string());
    if (test.contains("expected")) {
      const bool equal =
          rendered.ok() && rendered->text == std::string(test.at("expected").as_string());
      tally.Add(equal, "text", name);
      if (!equal) {
        fmt::print("    {}\n", rendered.ok() ? json::serialize(json::string(rendered->text))
                                             : rendered.status().ToString());
      }
      continue;
    }
    const std::string error(test.at("error").as_string());
    if (test.at("error_kind").as_string() == "raised") {
      tally.Add(!rendered.ok() && std::string(rendered.status().message()) == error, "error", name);
    } else {
      ++n_python_errors;
      fmt::print("  {}: Python says \"{}\", here {}\n", name, error,
                 rendered.ok() ? "a text" : rendered.status().ToString());
    }
  }
  fmt::print("{}: {} of {} equal, {} more are Python errors\n",
             golden.at("name").as_string().c_str(), tally.n_equal, tally.n_total, n_python_errors);
  return tally.n_equal == tally.n_total ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: text_golden_check GOLDEN.json [MODEL_DIR...]\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  std::stringstream content;
  content << file.rdbuf();
  const json::value golden = json::parse(content.str());
  if (golden.as_object().contains("template")) return CheckTemplate(golden);
  return CheckTokenizers(golden, std::span(argv + 2, argv + argc));
}

}  // namespace
}  // namespace stagecoach::text

int main(int argc, char** argv) { return stagecoach::text::Main(argc, argv); }
