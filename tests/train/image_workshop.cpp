#include "tests/train/image_workshop.h"

#include "hub/resident_model.h"
#include "runtime/whole_file.h"
#include "tests/small_model.h"
#include "tests/text/data/image_tokens.h"

namespace flatshard::test {
namespace {

constexpr const char* kPictures[] = {"orientation_6.jpeg", "rgb_8.png"};
constexpr int64_t kVocab = 100;

bool has_tiles(const std::string& family) { return image_family_of(family) == ImageFamily::idefics3; }

std::string preprocessor_of(const std::string& family) {
  if (flatshard::family(family).rope_axes) return R"({"patch_size": 2, "min_pixels": 16, "max_pixels": 64})";
  if (has_tiles(family))
    return R"({"size": {"longest_edge": 8}, "max_image_size": {"longest_edge": 8}, "do_image_splitting": false})";
  return R"({"size": {"longest_edge": 16, "shortest_edge": 8}, "do_image_splitting": false})";
}

}  // namespace

ImageInput input_of(const std::string& family) {
  if (flatshard::family(family).rope_axes) return small_squares_input();
  return has_tiles(family) ? small_tile_input() : small_image_input();
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

Workshop workshop_with(const std::string& folder, const ModelConfig& c) {
  Workshop workshop(folder);
  StreamGroup streams(Device::cpu());
  const ResidentModel model(resolved(c), DType::f32, streams.add("compute"));
  fill_random(model, 0.1f);
  write_model_folder(workshop.file("model"), model);
  write_whole_file(workshop.file("model/preprocessor_config.json"), preprocessor_of(c.family));
  return workshop;
}

ModelConfig model_for_images(const std::string& family) {
  const ImageInput input = input_of(family);
  ModelConfig c = model_for_workshop(family, kVocab);
  c.vision->patch_size = input.rules.patch_size;
  c.vision->image_token = input.token;
  if (!flatshard::family(family).rope_axes)
    c.vision->image_size = input.rules.position_side * input.rules.patch_size;
  if (family == "idefics2") c.vision->perceiver.latents = input.rules.latents;
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
