#pragma once
// The options of every program that runs a model.

#include <iosfwd>
#include <string>
#include <vector>

#include "comm/world.h"
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

// Chooses and selects the device. Rank 0 says why it is the CPU if a GPU was not ruled out.
Device start_device(const ModelOptions& options, World& world, std::ostream& err);
// Prints the folders used, and the warnings about an adapter, on rank 0.
void report_source(const ModelSource& source, const World& world, std::ostream& err);
// Appends --adapter, --other-base, --base-as-stored, --dtype and --device. The program declares the folder.
void add_model_options(std::vector<Option>& to, ModelOptions& options);

// Options that programs share.
Option template_option(std::string& chat_template);
Option date_option(std::string& date);
Option force_option(bool& force, std::vector<std::string> needs = {});
// An Error if an output file exists, unless --force replaces it.
void check_is_new(const std::string& path, bool force);
}  // namespace flatshard
