#pragma once
// Folders in which tests train models that read images.

#include <string>

#include "model/config.h"
#include "tests/workshop.h"
#include "text/images/image_input.h"

namespace flatshard::test {

// The rules by which workshop_with_images() shows images to a model of this family.
ImageInput input_of(const std::string& family);

// A model of this family. Its text has the sizes of the workshop's config.
ModelConfig model_for_workshop(const std::string& family, int64_t vocab = Workshop::kVocab);

// The same for a model that reads the images of input_of(). The vocabulary has 100 tokens.
ModelConfig model_for_images(const std::string& family);

// Writes a token file for this model. Its documents have two images of different sizes, one image and none.
void write_documents_with_images(const std::string& path, const std::string& family);

// Writes a model with the tokenizer, chat template and image rules of tests/golden/image_folders. Its text
// has the sizes of the workshop's config, except for the vocabulary, whose size is returned.
int64_t write_seeing_model(const std::string& folder, const std::string& family);

// A workshop with this model in the folder "model".
Workshop workshop_with(const std::string& folder, const ModelConfig& c);

// A workshop with model_for_images(), and with images.tok from write_documents_with_images().
Workshop workshop_with_images(const std::string& folder, const std::string& family);

}  // namespace flatshard::test
