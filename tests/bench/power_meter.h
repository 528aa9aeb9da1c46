// Reads a GPU's consumed energy and its current clock through NVML, which is part of the driver.
#pragma once

namespace stagecoach {

class PowerMeter {
 public:
  // `device`: CUDA's device number. Ends the program if NVML is missing.
  explicit PowerMeter(int device);

  // Energy consumed since the driver was loaded. The counter advances in steps of up to 0.1 s.
  double Joules() const;
  double ClockGhz() const;  // clock of the SMs

 private:
  void* nvml_;
  void* device_ = nullptr;  // NVML's device handle
};

}  // namespace stagecoach
