#pragma once
// Folders in which tests train models that read images.

#include <string>

#include "model/config.h"
#include "tests/workshop.h"
#include "text/images/image_input.h"

namespace flatshard::test {

// How workshop_with_images() shows images to a model of this family.
ImageInput input_of(const std::string& family);

// A model of this family, whose text has the sizes of the workshop's config.
ModelConfig model_for_workshop(const std::string& family, int64_t vocab = Workshop::kVocab);

// A workshop with a folder "model".
Workshop workshop_with(const std::string& folder, const ModelConfig& c);

// With a model of this family, which reads images, and images.tok, in whose documents there are two images of
// different sizes, one and none; the vocabulary has 100 tokens.
Workshop workshop_with_images(const std::string& folder, const std::string& family);

}  // namespace flatshard::test
