// config.json, generation_config.json and adapter_config.json.
#include "common/model/model_spec.h"
#include "tests/fuzz/fuzz.h"
#include "worker/loader/lora_config.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const fuzz::Folder& folder = fuzz::TheFolder();
  folder.Write("config.json", fuzz::Text(data, size));
  fuzz::Accept(ReadModelSpec(folder.path()).status());
  fuzz::Accept(ReadGenerationDefaults(folder.path()).status());
  folder.Write("generation_config.json", fuzz::Text(data, size));
  fuzz::Accept(ReadGenerationDefaults(folder.path()).status());
  std::filesystem::remove(folder.File("generation_config.json"));
  folder.Write("adapter_config.json", fuzz::Text(data, size));
  const auto lora = worker::ReadLoraConfig(folder.path());
  fuzz::Accept(lora.status());
  if (lora.ok()) lora->Scale("model.layers.0.self_attn.q_proj", 8);
  return 0;
}
