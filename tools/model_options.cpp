#include "tools/model_options.h"

#include <ostream>

namespace flatshard {

void report_source(const ModelSource& source, std::ostream& err) {
  for (const std::string& note : source.notes) err << note << '\n';
  for (const std::string& warning : warnings_of(source)) err << "warning: " << warning << '\n';
  err << std::flush;
}

void add_model_options(std::vector<Option>& to, ModelOptions& options) {
  to.insert(to.end(),
            {{"--adapter",
              &options.adapter,
              "folder of a LoRA adapter for the model; default: none, or that of FOLDER, if it is an adapter "
              "or a run that trained one",
              {.type = "DIR"}},
             {"--other-base", &options.base.other,
              "accept a base with other weights than those that the adapter was trained on"},
             {"--base-as-stored", &options.base.as_stored,
              "do not round the weights of the base to 4 bits, if the run that trained the adapter did"},
             {"--dtype", choice(&options.precision, {Precision::fp32, Precision::bf16}), "compute dtype"},
             {"--device", choice(&options.device), "compute device; auto: a GPU if available"}});
}

}  // namespace flatshard
