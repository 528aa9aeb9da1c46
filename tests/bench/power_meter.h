// What a GPU has taken of energy, and its clock now, by NVML, which comes with the driver.
#pragma once

namespace stagecoach {

class PowerMeter {
 public:
  // Of CUDA's device. Ends the program where there is no NVML.
  explicit PowerMeter(int device);

  // Since the driver was loaded; counted in steps of up to a tenth of a second.
  double Joules() const;
  double ClockGhz() const;  // of the multiprocessors

 private:
  void* nvml_;
  void* device_ = nullptr;  // NVML's
};

}  // namespace stagecoach
