#include "tests/tools/ckpt/ckpt_run.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "checkpoint/checksums.h"
#include "checkpoint/float_values.h"
#include "runtime/check.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/small_model.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "text/tokenizer/tokenizer.h"
#include "tools/programs.h"

namespace flatshard::test {
namespace fs = std::filesystem;

std::ostream& operator<<(std::ostream& out, const Ran& ran) {
  return out << ran.exit_code << '\n' << ran.out << ran.err;
}

Ran ckpt(const std::vector<std::string>& words) {
  std::istringstream in;
  std::ostringstream out, err;
  const int code = run_ckpt(words, {in, out, err});
  return {code, out.str(), err.str()};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_refused(const std::vector<std::string>& words, const std::string& reason) {
  const Ran ran = ckpt(words);
  CAPTURE(ran);
  CHECK(ran.exit_code == 2);
  CHECK(ran.err.starts_with("ckpt: "));
  CHECK(has(ran.err, reason));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void change_state(const std::string& checkpoint, const std::function<void(TrainState&)>& change) {
  TrainState state = read_train_state(checkpoint + "/train_state.json");
  change(state);
  write_file(checkpoint + "/train_state.json", to_json(state));
  const Checksums before = Checksums::read(checkpoint);
  Checksums sums;
  for (const auto& [name, file] : before.files()) sums.add(name, read_file(checkpoint + "/" + name));
  write_file(checkpoint + "/checksums", sums.text());
}

void set_loss(const std::string& checkpoint, std::optional<double> loss) {
  change_state(checkpoint, [&](TrainState& state) { state.eval_loss = loss; });
}

std::string copy_of_run(const std::string& name) {
  static const std::string made = [] {
    fs::remove_all("ckpt_made");
    const Workshop workshop("ckpt_made");
    const Finished run = workshop.train(1, "--run.dir=run --checkpoint.save_every=2");
    check(run.exit_code == 0, run.output);
    int step = 2;
    for (const double loss : {3.5, 3.25, 3.75}) set_loss(str("ckpt_made/run/step-", step), loss), step += 2;
    return std::string("ckpt_made/run");
  }();
  fs::remove_all(name);
  fs::copy(made, name, fs::copy_options::recursive);
  return name;
}

void flip_byte(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

std::vector<float> all_floats(const SafetensorsEntry& entry) {
  std::vector<float> values(static_cast<size_t>(element_count(entry)));
  read_floats(entry, 0, std::ssize(values), values.data());
  return values;
}

void write_model(const std::string& folder, const std::string& config,
                 const std::vector<SafetensorsSpec>& specs, const std::vector<float>& values) {
  fs::create_directories(folder);
  write_file(folder + "/config.json", config);
  const SafetensorsLayout layout(specs);
  SafetensorsWriter writer(folder + "/model.safetensors", layout, true);
  for (size_t i = 0; i < specs.size(); ++i) writer.write(i, 0, values.data(), layout.elements(i));
  writer.finish();
}

std::string write_gguf(const std::string& path, const std::string& tokenizer) {
  const std::string folder = path + ".folder";
  fs::remove_all(folder);
  fs::remove(path);
  fs::create_directories(folder);
  fs::copy(str(kSourceDir, "/tests/golden/tokenizers/", tokenizer), folder);
  write_file(folder + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  StreamSet streams(Device::cpu());
  const ResidentModel model(small_model("llama", Tokenizer(folder).vocab() + 3), DType::f32,
                            streams.add("compute"));
  fill_random(model);
  write_model_folder(folder, model);
  const Ran ran = ckpt({"export", folder, path, "--type", "f32"});
  check(ran.exit_code == 0, ran.err);
  return folder;
}

}  // namespace flatshard::test
