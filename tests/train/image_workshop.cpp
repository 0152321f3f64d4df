#include "tests/train/image_workshop.h"

#include <filesystem>

#include "hub/resident_model.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/small_model.h"
#include "tests/text/data/image_tokens.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard::test {
namespace {

constexpr const char* kPictures[] = {"orientation_6.jpeg", "rgb_8.png"};
constexpr int64_t kVocab = 100;

bool cuts_frames(const std::string& family) { return image_family_of(family) == ImageFamily::idefics3; }

std::string preprocessor_of(const std::string& family) {
  if (flatshard::family(family).rope_axes) return R"({"patch_size": 2, "min_pixels": 16, "max_pixels": 64})";
  if (cuts_frames(family))
    return R"({"size": {"longest_edge": 8}, "max_image_size": {"longest_edge": 8}, "do_image_splitting": false})";
  return R"({"size": {"longest_edge": 16, "shortest_edge": 8}, "do_image_splitting": false})";
}

ModelConfig model_that_reads(const ImageInput& input, const std::string& family, int64_t vocab) {
  ModelConfig c = model_for_workshop(family, vocab);
  c.vision->patch_size = input.rules.patch_size;
  c.vision->scale = input.rules.scale;
  c.vision->image_token = input.token;
  if (!flatshard::family(family).rope_axes)
    c.vision->image_size = input.rules.position_side * input.rules.patch_size;
  if (family == "idefics2") c.vision->perceiver.latents = input.rules.latents;
  return c;
}

void write_random_model(const std::string& folder, const ModelConfig& c, float deviation) {
  StreamSet streams(Device::cpu());
  const ResidentModel model(resolved(c), DType::f32, streams.add("compute"));
  fill_random(model, deviation);
  write_model_folder(folder, model);
}

}  // namespace

ImageInput input_of(const std::string& family) {
  if (flatshard::family(family).rope_axes) return small_squares_input();
  return cuts_frames(family) ? small_frame_input() : small_image_input();
}

ModelConfig model_for_workshop(const std::string& family, int64_t vocab) {
  ModelConfig c = small_model(family, vocab);
  c.hidden = 24;
  c.heads = c.kv_heads = 2;
  c.head_dim = c.query_scalar = 12;
  c.ffn = 40;
  if (flatshard::family(family).rope_axes) c.rope_sections = {2, 1, 3};
  return c;
}

int64_t write_seeing_model(const std::string& folder, const std::string& family) {
  namespace fs = std::filesystem;
  const std::string published = str(kSourceDir, "/tests/golden/image_folders/", family);
  ModelConfig c = model_that_reads(read_image_input(published).value(), family, Tokenizer(published).vocab());
  c.max_positions = 256;
  write_random_model(folder, c, 0.3f);
  for (const fs::directory_entry& file : fs::directory_iterator(published))
    if (file.path().filename() != "config.json")
      fs::copy(file.path(), fs::path(folder) / file.path().filename(), fs::copy_options::overwrite_existing);
  return c.vocab;
}

Workshop workshop_with(const std::string& folder, const ModelConfig& c) {
  Workshop workshop(folder);
  write_random_model(workshop.file("model"), c, 0.1f);
  write_whole_file(workshop.file("model/preprocessor_config.json"), preprocessor_of(c.family));
  return workshop;
}

ModelConfig model_for_images(const std::string& family) {
  ModelConfig c = model_that_reads(input_of(family), family, kVocab);
  if (family == "qwen2_5_vl") c.vision->window = 1;
  return c;
}

void write_documents_with_images(const std::string& path, const std::string& family) {
  const std::string a = picture(kPictures[0]), b = picture(kPictures[1]);
  std::vector<ImageDocument> documents;
  for (int i = 0; i < 24; ++i)
    documents.push_back({.images = i % 3 == 0   ? std::vector<std::string>{a, b}
                                   : i % 3 == 1 ? std::vector<std::string>{b}
                                                : std::vector<std::string>{},
                         .text = 4 + i % 5});
  write_image_tokens(path, documents, input_of(family));
}

Workshop workshop_with_images(const std::string& folder, const std::string& family) {
  Workshop workshop = workshop_with(folder, model_for_images(family));
  write_documents_with_images(workshop.file("images.tok"), family);
  return workshop;
}

}  // namespace flatshard::test
