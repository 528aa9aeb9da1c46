// One line of a batch file.
#include "cli/batch_line.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  fuzz::Accept(cli::ParseBatchLine(fuzz::Text(data, size)).status());
  return 0;
}
