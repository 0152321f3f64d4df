#pragma once
// The options of every program that runs a model.

#include <iosfwd>
#include <string>
#include <vector>

#include "tools/inference/find_model.h"
#include "train/command_line/command.h"
#include "train/setup/device_choice.h"

namespace flatshard {

struct ModelOptions {
  std::string folder, adapter;
  Precision precision = Precision::fp32;
  DeviceChoice device = DeviceChoice::automatic;
  BaseChoice base{};

  ModelSource source() const { return find_model(folder, adapter, base); }
  DType compute_dtype() const { return dtype_in(precision); }
};

// Prints the folders used, and the warnings about an adapter.
void report_source(const ModelSource& source, std::ostream& err);

// Appends --adapter, --other-base, --base-as-stored, --dtype and --device. The program declares the folder.
void add_model_options(std::vector<Option>& to, ModelOptions& options);

}  // namespace flatshard
