// config.json and generation_config.json.
#include "common/model/model_spec.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const fuzz::Folder& folder = fuzz::TheFolder();
  folder.Write("config.json", fuzz::Text(data, size));
  fuzz::Accept(ReadModelSpec(folder.path()).status());
  fuzz::Accept(ReadGenerationDefaults(folder.path()).status());
  folder.Write("generation_config.json", fuzz::Text(data, size));
  fuzz::Accept(ReadGenerationDefaults(folder.path()).status());
  std::filesystem::remove(folder.File("generation_config.json"));
  return 0;
}
