#pragma once
// The images of a prompt, as the model reads them.

#include <functional>
#include <optional>
#include <string>

#include "text/chat/conversation.h"
#include "text/images/image_input.h"
#include "tools/inference/image_pass.h"

namespace flatshard {

// Reads from the headers of a conversation's images how large they are, which its tokens depend on. An Error
// begins with the name of an image.
void find_image_sizes(Conversation& conversation);

// Decodes an image with these facts, cuts it into frames and appends these. An Error begins with the name.
void append_image(const ImageInput& input, const std::string& name, const std::string& bytes,
                  const ImageFacts& facts, PromptImages& images);

// Does so for the images of a conversation, whose sizes are known.
PromptImages read_images(const ImageInput& input, const Conversation& conversation);

// Reads them when a prompt begins; null if there are none. The input must outlive it.
std::function<PromptImages()> images_of(const std::optional<ImageInput>& input,
                                        const Conversation& conversation);

}  // namespace flatshard
