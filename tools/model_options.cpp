#include "tools/model_options.h"

#include <CLI/CLI.hpp>

namespace flatshard {

void declare_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option(
         "--adapter", options.adapter,
         "folder of a LoRA adapter for the model; default: none, or that of FOLDER, if it is an adapter "
         "or a run that trained one")
      ->type_name("DIR");
  app.add_option("--dtype", options.dtype, "compute dtype")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--device", options.device, "compute device; auto: a GPU if available")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

}  // namespace flatshard
