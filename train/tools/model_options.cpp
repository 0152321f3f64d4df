#include "train/tools/model_options.h"

#include <CLI/CLI.hpp>

namespace flatshard {

void declare_model_options(CLI::App& app, std::string& dtype, std::string& device) {
  app.add_option("--dtype", dtype, "compute dtype")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--device", device, "compute device; auto: a GPU if available")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

}  // namespace flatshard
