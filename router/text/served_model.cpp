#include "router/text/served_model.h"

#include <fmt/format.h>

#include <utility>

#include "common/status.h"

namespace stagecoach::router {

absl::StatusOr<ServedModel> ReadServedModel(const std::string& model_dir, const std::string& name,
                                            const std::string& chat_template_path) {
  ServedModel model;
  model.name = name;
  SC_ASSIGN_OR_RETURN(model.spec, ReadModelSpec(model_dir));
  SC_ASSIGN_OR_RETURN(model.defaults, ReadGenerationDefaults(model_dir));
  SC_ASSIGN_OR_RETURN(model.tokenizer, text::Tokenizer::Load(model_dir));
  if (model.tokenizer->vocab_size() > model.spec.vocab_size) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: the tokenizer has ids up to {}, but the embedding has only {} rows (vocab_size in "
        "config.json): remove the tokens added to tokenizer.json, or resize the model's embedding",
        model_dir, model.tokenizer->vocab_size() - 1, model.spec.vocab_size));
  }
  auto chat_template = text::ChatTemplate::Load(model_dir, chat_template_path);
  if (chat_template.ok()) {
    model.chat_template = *std::move(chat_template);
  } else if (!absl::IsNotFound(chat_template.status()) || !chat_template_path.empty()) {
    return chat_template.status();
  }
  return model;
}

absl::Status CheckModelName(const ServedModel& served, const std::string& model) {
  if (model.empty() || model == served.name) return absl::OkStatus();
  return absl::NotFoundError(
      fmt::format("model: '{}' is not served here; this is '{}'", model, served.name));
}

}  // namespace stagecoach::router
