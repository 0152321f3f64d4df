#include "tools/model_options.h"

#include <filesystem>
#include <ostream>

#include "comm/gpu_place.h"
#include "runtime/check.h"
#include "runtime/gpu.h"

namespace flatshard {

Device start_device(const ModelOptions& options, World& world, std::ostream& err) {
  const Device device = choose_device("--device", options.device, place_on_gpu(world).index);
  select_gpu(device);
  if (const std::string note = why_on_cpu(options.device); !note.empty() && world.rank() == 0)
    err << note << '\n';
  return device;
}

void report_source(const ModelSource& source, const World& world, std::ostream& err) {
  if (world.rank() != 0) return;
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

Option template_option(std::string& chat_template) {
  return {"--chat-template", &chat_template,
          "chat template in place of the folder's: a built-in name, such as chatml, or a file"};
}

Option date_option(std::string& date) {
  return {"--date",
          &date,
          "date that the chat template prints, if it prints one; default: today's",
          {.type = "YYYY-MM-DD"}};
}

Option force_option(bool& force, std::vector<std::string> needs) {
  return {"--force", &force, "replace the output file if it exists", {.needs = std::move(needs)}};
}

void check_is_new(const std::string& path, bool force) {
  check(force || !std::filesystem::exists(path), path,
        ": exists already; give another name, or --force to replace it");
}
}  // namespace flatshard
