#pragma once
// Token files with images for tests. An image is a token 91, its tokens 90, which is <image>, and a token 91:
// two of them by small_image_input().

#include <string>
#include <vector>

#include "source_dir.h"
#include "text/data/token_file.h"

namespace flatshard::test {

inline ImageInput small_image_input() {
  return {.rules = {.patch_size = 4,
                    .position_side = 8,
                    .longest_edge = 16,
                    .shortest_edge = 8,
                    .splits = false,
                    .latents = 2},
          .token = 90};
}

// One frame of four patches, which become one token.
inline ImageInput small_frame_input() {
  return {.rules = {.family = ImageFamily::idefics3,
                    .patch_size = 4,
                    .position_side = 2,
                    .longest_edge = 8,
                    .frame_edge = 8,
                    .splits = false,
                    .filter = ResizeFilter::lanczos},
          .token = 90};
}

// At most four squares of patches.
inline ImageInput small_squares_input() {
  return {.rules = {.family = ImageFamily::qwen2_vl,
                    .patch_size = 2,
                    .filter = ResizeFilter::bicubic,
                    .mean = kClipMean,
                    .std = kClipStd,
                    .fewest_pixels = 16,
                    .most_pixels = 64},
          .token = 90};
}

inline std::string picture(const std::string& name) { return str(kSourceDir, "/tests/golden/images/", name); }

// Images, by their paths, and then so many trained tokens 1, 2, 3, ...
struct ImageDocument {
  std::vector<std::string> images;
  int text = 2;
};

inline void write_image_tokens(const std::string& path, const std::vector<ImageDocument>& documents,
                               const ImageInput& input = small_image_input()) {
  TokenWriter writer(path, 100);
  writer.set_manifest(R"({"images":)" + to_json(input) + "}");
  for (const ImageDocument& document : documents) {
    std::vector<int32_t> tokens;
    std::vector<DocumentImage> images;
    for (const std::string& source : document.images) {
      const ImageFacts facts = facts_of({.path = source});
      const ImageLayout layout = layout_of(input.rules, facts.size);
      const auto begin = static_cast<int64_t>(tokens.size());
      tokens.push_back(91);
      tokens.insert(tokens.end(), static_cast<size_t>(layout.tokens), input.token);
      tokens.push_back(91);
      images.push_back({.extent = {.begin = begin,
                                   .end = begin + layout.tokens + 2,
                                   .tokens = layout.tokens,
                                   .frames = std::ssize(layout.frames),
                                   .patches = layout.patches},
                        .source = {.path = source},
                        .facts = facts,
                        .where = "chats.jsonl:" + std::to_string(writer.document_count() + 1)});
    }
    std::vector<uint8_t> trained(tokens.size(), 0);
    for (int i = 1; i <= document.text; ++i) tokens.push_back(i);
    trained.resize(tokens.size(), 1);
    writer.add_document(tokens, trained, images);
  }
  writer.finish();
}

}  // namespace flatshard::test
