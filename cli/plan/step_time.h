// Estimated time that a GPU takes for one step of a stage. It is arithmetic only: rates are the
// data sheet's peaks times the shares of them that this server's kernels were measured to reach.
#pragma once

#include "cli/plan/gpu_table.h"
#include "cli/plan/stage_work.h"

namespace stagecoach::plan {

// In seconds. Each row is the newest token of a sequence, which has `context` tokens before it.
double DecodeSeconds(const StageWork& work, double rows, double context, const Gpu& gpu);

// In seconds. The rows are those of prompts of that many tokens.
double PromptSeconds(const StageWork& work, double rows, double prompt_tokens, const Gpu& gpu);

}  // namespace stagecoach::plan
