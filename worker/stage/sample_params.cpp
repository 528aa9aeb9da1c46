#include "worker/stage/sample_params.h"

#include <type_traits>

#include "common/number_fields.h"

namespace stagecoach::worker {

kernels::SampleParams ToSampleParams(const v1::SlotSampling& sampling) {
  kernels::SampleParams params;
  kernels::SampleParams::ForEach(params, [&sampling](const char* name, auto& field) {
    field = static_cast<std::remove_reference_t<decltype(field)>>(GetNumber(sampling, name));
  });
  return params;
}

}  // namespace stagecoach::worker
