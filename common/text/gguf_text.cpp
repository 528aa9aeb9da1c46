#include "common/text/gguf_text.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "common/gguf/gguf_file.h"
#include "common/status.h"
#include "common/text/abi_status.h"

namespace stagecoach::text {
namespace {

using gguf::GgufFile;

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string Key(std::string_view name) { return fmt::format("{}{}", kPrefix, name); }

ScTextString AbiString(std::string_view text) { return {text.data(), text.size()}; }

std::vector<ScTextString> AbiStrings(const std::vector<std::string_view>& texts) {
  std::vector<ScTextString> out;
  out.reserve(texts.size());
  for (std::string_view text : texts) out.push_back(AbiString(text));
  return out;
}

absl::Status WithFile(const GgufFile& file, const absl::Status& status) {
  return absl::Status(status.code(),
                      fmt::format("{}: {}", file.path(), std::string(status.message())));
}

// Optional metadata: it may be absent, but a wrong type is an error.
absl::StatusOr<std::string_view> StringOr(const GgufFile& file, const std::string& key,
                                          std::string_view otherwise) {
  if (!file.Has(key)) return otherwise;
  return file.String(key);
}

absl::StatusOr<int64_t> IdOrNone(const GgufFile& file, std::string_view name) {
  const std::string key = Key(name);
  if (!file.Has(key)) return -1;
  return file.Int(key);
}

absl::StatusOr<int32_t> FlagOrUnset(const GgufFile& file, std::string_view name) {
  const std::string key = Key(name);
  if (!file.Has(key)) return -1;
  SC_ASSIGN_OR_RETURN(const bool flag, file.Bool(key));
  return flag;
}

absl::StatusOr<std::vector<ScTextString>> Roles(const GgufFile& file) {
  struct Role {
    std::string_view name;
    std::string_view id_key;
  };
  constexpr Role kRoles[] = {{"bos_token", "bos_token_id"},
                             {"eos_token", "eos_token_id"},
                             {"unk_token", "unknown_token_id"},
                             {"pad_token", "padding_token_id"}};
  SC_ASSIGN_OR_RETURN(const auto tokens, file.Strings(Key("tokens")));
  std::vector<ScTextString> roles;
  for (const Role& role : kRoles) {
    SC_ASSIGN_OR_RETURN(const int64_t id, IdOrNone(file, role.id_key));
    if (id < 0 || id >= static_cast<int64_t>(tokens.size())) continue;
    roles.push_back(AbiString(role.name));
    roles.push_back(AbiString(tokens[id]));
  }
  return roles;
}

absl::StatusOr<std::string> ReadTemplate(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) return absl::NotFoundError(fmt::format("cannot read the chat template {}", path));
  return content.str();
}

}  // namespace

bool IsGguf(std::string_view path) { return path.ends_with(".gguf"); }

absl::StatusOr<ScTextTokenizer*> LoadGgufTokenizer(const std::string& path) {
  SC_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  SC_ASSIGN_OR_RETURN(const std::string_view model, file->String(Key("model")));
  SC_ASSIGN_OR_RETURN(const std::string_view pre, StringOr(*file, Key("pre"), ""));
  SC_ASSIGN_OR_RETURN(const auto token_texts, file->Strings(Key("tokens")));
  const std::vector<ScTextString> tokens = AbiStrings(token_texts);
  std::vector<ScTextString> merges;
  if (file->Has(Key("merges"))) {
    SC_ASSIGN_OR_RETURN(const auto texts, file->Strings(Key("merges")));
    merges = AbiStrings(texts);
  }
  std::vector<float> scores;
  if (file->Has(Key("scores"))) {
    SC_ASSIGN_OR_RETURN(scores, file->Floats(Key("scores")));
  }
  std::vector<int32_t> kinds;
  if (file->Has(Key("token_type"))) {
    SC_ASSIGN_OR_RETURN(const auto numbers, file->Ints(Key("token_type")));
    kinds.assign(numbers.begin(), numbers.end());
  }
  SC_ASSIGN_OR_RETURN(const int64_t bos_id, IdOrNone(*file, "bos_token_id"));
  SC_ASSIGN_OR_RETURN(const int64_t eos_id, IdOrNone(*file, "eos_token_id"));
  SC_ASSIGN_OR_RETURN(const int64_t unk_id, IdOrNone(*file, "unknown_token_id"));
  SC_ASSIGN_OR_RETURN(const int64_t pad_id, IdOrNone(*file, "padding_token_id"));
  SC_ASSIGN_OR_RETURN(const int32_t add_bos, FlagOrUnset(*file, "add_bos_token"));
  SC_ASSIGN_OR_RETURN(const int32_t add_eos, FlagOrUnset(*file, "add_eos_token"));
  SC_ASSIGN_OR_RETURN(const int32_t add_space_prefix, FlagOrUnset(*file, "add_space_prefix"));
  const ScTextGguf gguf = {
      .model = AbiString(model),
      .pre = AbiString(pre),
      .tokens = tokens.data(),
      .n_tokens = tokens.size(),
      .scores = scores.data(),
      .n_scores = scores.size(),
      .kinds = kinds.data(),
      .n_kinds = kinds.size(),
      .merges = merges.data(),
      .n_merges = merges.size(),
      .bos_id = bos_id,
      .eos_id = eos_id,
      .unk_id = unk_id,
      .pad_id = pad_id,
      .add_bos = add_bos,
      .add_eos = add_eos,
      .add_space_prefix = add_space_prefix,
  };
  ScTextTokenizer* tokenizer = nullptr;
  ErrorBuffer error{};
  const int32_t code = sc_text_tokenizer_from_gguf(&gguf, &tokenizer, error.data(), error.size());
  if (code != 0) return WithFile(*file, AbiStatus(code, error));
  return tokenizer;
}

absl::StatusOr<ScTextTemplate*> LoadGgufTemplate(const std::string& path,
                                                 const std::string& override_path) {
  SC_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  constexpr const char* kTemplate = "tokenizer.chat_template";
  std::string source;
  std::string_view tool_use;
  if (!override_path.empty()) {
    SC_ASSIGN_OR_RETURN(source, ReadTemplate(override_path));
  } else if (file->Has(kTemplate)) {
    SC_ASSIGN_OR_RETURN(source, file->String(kTemplate));
    SC_ASSIGN_OR_RETURN(tool_use, StringOr(*file, "tokenizer.chat_template.tool_use", ""));
  } else {
    return absl::NotFoundError(
        fmt::format("{}: has no {}; name a template file to serve chats", path, kTemplate));
  }
  SC_ASSIGN_OR_RETURN(const std::vector<ScTextString> roles, Roles(*file));
  ScTextTemplate* chat_template = nullptr;
  ErrorBuffer error{};
  const int32_t code =
      sc_text_template_from_source(source.data(), source.size(), AbiString(tool_use), roles.data(),
                                   roles.size() / 2, &chat_template, error.data(), error.size());
  if (code != 0) {
    return override_path.empty() ? WithFile(*file, AbiStatus(code, error)) : AbiStatus(code, error);
  }
  return chat_template;
}

}  // namespace stagecoach::text
