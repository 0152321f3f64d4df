#include "runtime/tensor.h"

#include "runtime/param.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a shape has a size and indexes dimensions from both ends") {
  const Shape shape{2, 3, 4};
  CHECK(shape.size() == 24);
  CHECK(shape[-1] == 4);
  CHECK(shape[0] == 2);
  CHECK(str(shape) == "(2, 3, 4)");
  CHECK(Shape{}.size() == 1);
  CHECK(Shape{0, 5}.size() == 0);
  CHECK(test::error_of([&] { return shape[3]; }) == "dimension 3 is outside a shape of rank 3");
  CHECK(test::error_of([&] { return shape[-4]; }) == "dimension -4 is outside a shape of rank 3");
}

TEST_CASE("a shape rejects negative, too many and overflowing dimensions") {
  CHECK(test::error_of([] { Shape({3, -1}); }) == "dimension 1 of a shape is -1, must not be negative");
  CHECK(test::error_of([] { Shape({1, 1, 1, 1, 1, 1}); }) == "a shape has 6 dimensions, must have at most 5");
  CHECK(test::error_of([] {
          Shape({int64_t{1} << 40, int64_t{1} << 40});
        }) == "a shape has more than 2^63 elements");
}

TEST_CASE("a tensor is read only as its own dtype") {
  float data[6] = {0, 1, 2, 3, 4, 5};
  const Tensor t = tensor_of(data, {2, 3});
  CHECK(t.as<float>()[5] == 5.0f);
  CHECK(test::error_of([&] { t.as<bf16>(); }) == "tensor (2, 3) holds f32 but is read as bf16");
}

TEST_CASE("a view keeps the elements, a slice selects a range of the first dimension") {
  float data[6] = {0, 1, 2, 3, 4, 5};
  const Tensor t = tensor_of(data, {3, 2});
  CHECK(t.view({6}).shape == Shape{6});
  CHECK(t.slice(1, 3).as<float>()[0] == 2.0f);
  CHECK(t.slice(1, 3).shape == Shape{2, 2});
  CHECK(t.rows() == 3);
  CHECK(test::error_of([&] { t.view({5}); }) == "a tensor (3, 2) of 6 elements cannot be viewed as (5)");
  CHECK(test::error_of([&] { t.slice(2, 4); }) == "slice [2, 4) is outside a tensor (3, 2)");
}

TEST_CASE("parameters are identified by id, and names are unique") {
  ParamList params;
  const ParamId w = params.add({.name = "w", .shape = {4, 2}, .init = Init::normal(0.02f)});
  const ParamId b = params.add({.name = "b", .shape = {4}, .init = Init::constant(0), .decay = false});
  CHECK(params[w].shape == Shape{4, 2});
  CHECK_FALSE(params[b].decay);
  CHECK(params.parameter_count() == 12);
  CHECK(test::error_of([&] { params.add({.name = "w", .shape = {1}, .init = {}}); }) ==
        "parameter w is declared twice");

  float values[12] = {};
  const Tensor tensors[2] = {tensor_of(values, {4, 2}), tensor_of(values + 8, {4})};
  const ParamView view(tensors);
  CHECK(view[b].data == values + 8);
}

TEST_CASE("joined parameters are one matrix if they are adjacent and equally wide") {
  float values[24] = {};
  const Tensor a = tensor_of(values, {1, 3}), b = tensor_of(values + 3, {2, 3}),
               c = tensor_of(values + 9, {4, 3}), narrow = tensor_of(values + 9, {4, 2}),
               apart = tensor_of(values + 12, {4, 3});
  const ParamId ids[] = {{0}, {1}, {2}};
  const auto joined = [&](const std::vector<Tensor>& tensors) { return ParamView(tensors).joined(ids); };
  CHECK(joined({a, b, c}).shape == Shape{7, 3});
  CHECK(joined({a, b, c}).data == values);
  CHECK(ParamView(std::vector{a, b, c}).joined({ids, 1}).shape == Shape{1, 3});
  CHECK(joined({Tensor{}, Tensor{}, Tensor{}}).empty());  // gradients of frozen parameters
  const auto planned = [](const Shape& shape) { return Tensor{nullptr, DType::bf16, shape, {}}; };
  CHECK(joined({planned({1, 3}), planned({2, 3}), planned({4, 3})}).shape == Shape{7, 3});
  for (const Tensor& wrong : {narrow, apart})
    CHECK(test::error_of([&] { joined({a, b, wrong}); }) == "parameters 0 to 2 are not one matrix in memory");
}
