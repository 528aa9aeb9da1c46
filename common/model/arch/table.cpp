#include "common/model/arch/arch.h"

namespace stagecoach::arch {

std::span<const Architecture> Architectures() {
  static constexpr Architecture kTable[] = {
      {"OPTForCausalLM", "opt", ReadOpt},
      {"LlamaForCausalLM", "llama", ReadLlama},
      {"MistralForCausalLM", "mistral", ReadMistral},
      {"Gemma2ForCausalLM", "gemma2", ReadGemma2},
      {"Gemma3ForCausalLM", "gemma3_text", ReadGemma3},
      {"Gemma3ForConditionalGeneration", "gemma3", ReadGemma3Multimodal},
  };
  return kTable;
}

}  // namespace stagecoach::arch
