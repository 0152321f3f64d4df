#include "tools/inference/prompt_images.h"

#include "runtime/check.h"

namespace flatshard {
namespace {

void append_frames(const ImageInput& input, const std::string& bytes, const ImageFacts& facts,
                   PromptImages& images) {
  const ImageLayout layout = layout_of(input.rules, facts.size);
  const Image image =
      decoded(std::as_bytes(std::span(bytes)), transparency_of(input.rules.family, facts.is_object));
  const size_t before = static_cast<size_t>(images.frames.back()),
               count = static_cast<size_t>(layout.patches),
               width = static_cast<size_t>(input.rules.patch_width()),
               axes = static_cast<size_t>(input.rules.axes());
  images.positions.resize((before + count) * axes);
  images.patches.resize((before + count) * width);
  write_patches(input.rules, layout, image, images.patches.data() + before * width,
                images.positions.data() + before * axes, layout.patches);
  for (const ImageFrame& frame : layout.frames)
    images.frames.push_back(images.frames.back() + static_cast<int32_t>(frame.patches()));
}

}  // namespace

void append_image(const ImageInput& input, const std::string& name, const std::string& bytes,
                  const ImageFacts& facts, PromptImages& images) {
  try {
    append_frames(input, bytes, facts, images);
  } catch (const Error& error) {
    throw Error(str(name, ": ", error.what()), error.where);
  }
}

void find_image_sizes(Conversation& conversation) {
  for (ShownImage& image : conversation.images) image.size = facts_of(image.source).size;
}

PromptImages read_images(const ImageInput& input, const Conversation& conversation) {
  PromptImages images;
  for (const auto& [message, source, size] : conversation.images)
    append_image(input, name_of(source), read_image(source), {.size = size, .is_object = source.is_object},
                 images);
  return images;
}

std::function<PromptImages()> images_of(const std::optional<ImageInput>& input,
                                        const Conversation& conversation) {
  if (!input || conversation.images.empty()) return {};
  return [&input = *input, conversation] { return read_images(input, conversation); };
}

}  // namespace flatshard
