// Measures the cost of grammars: CPU time to compile, CPU time of the slowest mask and of the
// slowest token, and memory. Uses built-in grammars, some of them designed to be slow, or the
// schemas in a file.
//
//   grammar_bench MODEL_DIR [SCHEMAS.jsonl]
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/text/grammar.h"
#include "common/text/token_table.h"
#include "common/text/tokenizer.h"

namespace {

using namespace stagecoach::text;
namespace json = boost::json;

constexpr int kTokens = 400;

struct Case {
  std::string name;
  GrammarSource source;
};

// CPU time, so that other programs on the machine do not count.
double ThreadMs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}
double ProcessMs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

Case Schema(std::string name, const json::value& schema) {
  return {std::move(name), {.kind = GrammarKind::kJsonSchema, .text = json::serialize(schema)}};
}
Case Lark(std::string name, std::string text) {
  return {std::move(name), {.kind = GrammarKind::kLark, .text = std::move(text)}};
}
Case Regex(std::string name, std::string text) {
  return {std::move(name), {.kind = GrammarKind::kRegex, .text = std::move(text)}};
}

std::vector<Case> Useful() {
  std::vector<Case> cases;
  for (const int n : {100, 800, 2000, 5000}) {
    json::object plain, patterns, tagged;
    json::array keys, texts, any;
    for (int i = 0; i < n; ++i) {
      const std::string name = fmt::format("property_{}", i);
      plain[name] = {{"type", "string"}};
      patterns[name] = {{"type", "string"}, {"pattern", fmt::format("^x{}[a-z]*$", i)}};
      keys.emplace_back(name);
      texts.emplace_back(fmt::format("value number {}", i));
      any.push_back({{"type", "object"},
                     {"properties",
                      {{"kind", {{"const", fmt::format("k{}", i)}}}, {"v", {{"type", "integer"}}}}},
                     {"required", {"kind", "v"}},
                     {"additionalProperties", false}});
    }
    const std::string size = fmt::format(" {}", n);
    cases.push_back(
        Schema("properties, optional" + size,
               {{"type", "object"}, {"properties", plain}, {"additionalProperties", false}}));
    cases.push_back(Schema("properties, required" + size, {{"type", "object"},
                                                           {"properties", plain},
                                                           {"required", keys},
                                                           {"additionalProperties", false}}));
    cases.push_back(Schema("properties with patterns" + size,
                           {{"type", "object"}, {"properties", patterns}, {"required", keys}}));
    cases.push_back(Schema("enum" + size, {{"enum", texts}}));
    cases.push_back(
        {"choice" + size, {.kind = GrammarKind::kChoice, .text = json::serialize(texts)}});
    if (n <= 2000) cases.push_back(Schema("anyOf" + size, {{"anyOf", any}}));
  }
  json::value deep = {{"type", "integer"}};
  for (int i = 0; i < 60; ++i) {
    deep = {{"type", "object"},
            {"properties", {{"a", deep}}},
            {"required", {"a"}},
            {"additionalProperties", false}};
  }
  cases.push_back(Schema("60 levels", deep));
  cases.push_back(Schema("any object", {{"type", "object"}}));
  cases.push_back(Schema("string of 10000", {{"type", "string"}, {"maxLength", 10000}}));
  cases.push_back(
      Schema("array of 10000",
             {{"type", "array"}, {"maxItems", 10000}, {"items", {{"type", "integer"}}}}));
  cases.push_back(Regex("regex", "(ab|[0-9]{2,4}| ){0,500}"));
  cases.push_back(Lark("calculator",
                       "start: e\ne: e \"+\" t | e \"-\" t | t\nt: t \"*\" f | f\n"
                       "f: \"(\" e \")\" | /[0-9]+/\n"));
  cases.push_back(Lark("list", "start: l\nl: i | l i\ni: \"a\" | \"b\"\n"));
  std::string sql =
      "start: \"SELECT \" cols \" FROM \" name where?\ncols: \"*\" | name (\", \" name)*\n"
      "where: \" WHERE \" cond (\" AND \" cond)*\ncond: name op value\n"
      "op: \" = \" | \" < \" | \" > \"\nvalue: /[0-9]+/ | /'[^']*'/\nname: /[a-z_]+/\n";
  cases.push_back(Lark("sql", std::move(sql)));
  return cases;
}

std::vector<Case> Hostile() {
  std::vector<Case> cases;
  cases.push_back(Lark("ambiguous", "start: e\ne: e e e | e e | \"a\" | \"b\"\n"));
  cases.push_back(
      Lark("ambiguous, any letter", "start: e\ne: e e e | e e | /[a-z]/ | /[ A-Z0-9]/\n"));
  std::string cycle = "start: e0\n";
  for (int i = 0; i < 20; ++i) {
    cycle += fmt::format("e{}: e{} e{} | e{} | \"a\" | \"b\"\n", i, (i + 1) % 20, (i + 7) % 20,
                         (i + 3) % 20);
  }
  cases.push_back(Lark("ambiguous, 20 rules", std::move(cycle)));
  std::string wide = "start: e\ne: \"a\" | \"b\"";
  std::string parts;
  for (int i = 0; i < 40; ++i) {
    wide += fmt::format(" | e f{} e", i);
    parts += fmt::format("f{}: \"a\" | \"\"\n", i);
  }
  cases.push_back(Lark("ambiguous, 40 ways", wide + "\n" + parts));
  cases.push_back(
      Lark("palindromes", "start: s\ns: \"a\" s \"a\" | \"b\" s \"b\" | \"a\" | \"b\"\n"));
  cases.push_back(Lark("right recursion", "start: l\nl: i l | i\ni: \"a\" | \"b\"\n"));
  cases.push_back(Lark("repeat", "start: (\"a\" | \"b\" | \"ab\"){0,2000}\n"));
  cases.push_back(Regex("states of a regex", "(a|b)*a(a|b){60}"));
  cases.push_back(Regex("states, any text", ".*x.{30}"));
  std::string many;
  for (int i = 0; i < 100; ++i) many += fmt::format("{}.*x.{{{}}}", i > 0 ? "|" : "", i + 1);
  cases.push_back(Regex("100 regexes", many));
  std::string large;
  std::mt19937 random(1);
  while (large.size() < 200'000)
    large += fmt::format("{}[a-z]{:x}", large.empty() ? "" : "|", random());
  cases.push_back(Regex("regex of 200 KB", large));
  json::value both = {{"type", "integer"}};
  for (int i = 0; i < 12; ++i)
    both = {
        {"anyOf", {{{"type", "array"}, {"items", both}}, {{"type", "array"}, {"items", both}}}}};
  cases.push_back(Schema("anyOf of the same", both));
  return cases;
}

std::vector<Case> OfFile(const char* path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    json::value value = json::parse(line);
    if (value.as_object().contains("schema")) value = json::value(value.at("schema"));
    cases.push_back(Schema(fmt::format("line {}", cases.size() + 1), value));
  }
  return cases;
}

void Run(const GrammarVocabulary& vocabulary, const Tokenizer& tokenizer, const Case& one,
         bool longest) {
  double begin = ProcessMs();
  const auto grammar = vocabulary.Compile(one.source);
  const double compile_ms = ProcessMs() - begin;
  if (!grammar.ok()) {
    fmt::print("{:32} compile {:7.1f} ms  refused: {:.100}\n", one.name, compile_ms,
               std::string(grammar.status().message()));
    return;
  }
  const size_t compiled = (*grammar)->n_bytes();
  const auto matcher = (*grammar)->NewMatcher().value();
  std::vector<uint32_t> words(vocabulary.n_mask_words());
  std::mt19937 random(1);
  double mask_ms = 0, token_ms = 0;
  int n = 0;
  std::string end = "runs on";
  for (; n < kTokens; ++n) {
    begin = ThreadMs();
    const auto may_end = matcher->Mask(words);
    mask_ms = std::max(mask_ms, ThreadMs() - begin);
    if (!may_end.ok()) {
      end = std::string(may_end.status().message());
      break;
    }
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary.n_logits(); ++id) {
      const bool is_end = std::find(vocabulary.eos_ids().begin(), vocabulary.eos_ids().end(), id) !=
                          vocabulary.eos_ids().end();
      if (!is_end && (words[id / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    }
    if (ids.empty()) {
      end = "ends";
      break;
    }
    const int32_t id = longest ? *std::max_element(ids.begin(), ids.end(),
                                                   [&](int32_t a, int32_t b) {
                                                     return tokenizer.TokenBytes(a).size() <
                                                            tokenizer.TokenBytes(b).size();
                                                   })
                               : ids[random() % ids.size()];
    begin = ThreadMs();
    const absl::Status taken = matcher->Consume({&id, 1});
    token_ms = std::max(token_ms, ThreadMs() - begin);
    if (!taken.ok()) {
      end = std::string(taken.message());
      break;
    }
  }
  fmt::print(
      "{:32} compile {:7.1f} ms  mask {:7.2f} ms  token {:6.2f} ms  {:6} KiB, then {:6}  {:3} "
      "tokens, {:.90}\n",
      one.name, compile_ms, mask_ms, token_ms, compiled >> 10, (*grammar)->n_bytes() >> 10, n, end);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: grammar_bench MODEL_DIR [SCHEMAS.jsonl]\n");
    return 1;
  }
  const auto tokenizer = Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(tokenizer.status().message()));
    return 1;
  }
  const std::vector<int32_t> eos = {(*tokenizer)->TokenId((*tokenizer)->eos_token()).value_or(1)};
  const auto table = MakeTokenTable(**tokenizer, (*tokenizer)->vocab_size(), eos);
  const auto vocabulary = GrammarVocabulary::Make(table.value()).value();
  if (argc > 2) {
    for (const Case& one : OfFile(argv[2])) Run(*vocabulary, **tokenizer, one, false);
    return 0;
  }
  for (const Case& one : Useful()) Run(*vocabulary, **tokenizer, one, false);
  for (const Case& one : Hostile()) {
    Run(*vocabulary, **tokenizer, one, false);
    Run(*vocabulary, **tokenizer, one, true);
  }
}
