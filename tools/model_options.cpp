#include "tools/model_options.h"

#include <ostream>

#include <CLI/CLI.hpp>

#include "train/command_line/arguments.h"

namespace flatshard {

void report_source(const ModelSource& source, std::ostream& err) {
  for (const std::string& note : source.notes) err << note << '\n';
  for (const std::string& warning : warnings_of(source)) err << "warning: " << warning << '\n';
  err << std::flush;
}

void declare_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option(
         "--adapter", options.adapter,
         "folder of a LoRA adapter for the model; default: none, or that of FOLDER, if it is an adapter "
         "or a run that trained one")
      ->type_name("DIR");
  app.add_flag("--other-base", options.base.other,
               "accept a base with other weights than those that the adapter was trained on");
  app.add_flag("--base-as-stored", options.base.as_stored,
               "do not round the weights of the base to 4 bits, if the run that trained the adapter did");
  add_choice(app, "--dtype", choice(&options.precision, {Precision::fp32, Precision::bf16}), "compute dtype");
  add_choice(app, "--device", choice(&options.device), "compute device; auto: a GPU if available");
}

}  // namespace flatshard
