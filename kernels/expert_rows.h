#pragma once
// The rows of a mixture of experts, sorted by expert: a segment of rows for each of E experts
// (grouped_product.h), which begins at a multiple of kSegmentRows. In a segment the rows have the order of
// their tokens. R rows are planned, enough for any choice; those between a segment's last row and the next
// segment belong to no token. A choice of expert -1 has no row: its place is -1, and it adds nothing.
//
// expert_part:  the rows of a part of the experts, side by side as they are among all rows. They begin at row
//               0 of the part. P may be less than the rows of the part, even 0: the others are left out.
// combine_rows: y[t] = addend[t] + sum_j weights[t, j] x[places[t, j]], in order of j, rounded once.
// weigh_rows:   with r = places[t, j], dweights[t, j] = <da[r], a[r]>; then da[r] and a[r] are multiplied by
//               weights[t, j]. Rows of no token keep their values. Without places, choice i has row i.
// gate_rows:    y[t] = addend[t] + sigmoid(gate[t]) x[t], for an expert that all tokens share.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// The rows that are planned for `choices` rows of tokens: each segment may end with kSegmentRows - 1 others.
int64_t expert_row_count(int64_t choices, int64_t experts);

struct ExpertRows {
  Tensor offsets;  // (E + 1) i32: where the segments begin, and the last one ends
  Tensor rows;     // (R) i32: the token of each row; -1: none
  Tensor places;   // (N, k) i32: the row of each of a token's choices
  // (E) i32, to which the number of choices is added; empty: not counted.
  Tensor counts{}, step_counts{};
  Tensor experts;  // (N, k) i32
};

struct ExpertPart {
  Tensor offsets;  // (n + 1) i32: where the segments of the part's n experts begin, and the last one ends
  // (P) i32, of each row of the part: its place among all rows, its token, and its index among the choices of
  // all tokens (t k + j). -1: none.
  Tensor places, rows, choices;
  Tensor all_offsets, all_rows, all_places;  // as in ExpertRows
  int64_t first = 0;                         // the first expert of the part
};

struct CombineRows {
  Tensor y;          // (N, C)
  Tensor x;          // (R, C), of y's dtype
  Tensor places;     // (N, k) i32
  Tensor weights{};  // (N, k) f32; empty: 1
  Tensor addend{};   // (N, C) of y's dtype, or empty; may be y
};

struct WeighRows {
  Tensor dweights;  // (N, k) f32
  Tensor da, a;     // (R, F)
  Tensor places;    // (N, k) i32, or empty
  Tensor weights;   // (N, k) f32
};

struct GateRowsForward {
  Tensor y;         // (N, C)
  Tensor x;         // (N, C), of y's dtype
  Tensor gate;      // (N) f32
  Tensor addend{};  // (N, C) of y's dtype, or empty
};

struct GateRowsBackward {
  Tensor dx;     // (N, C)
  Tensor dgate;  // (N) f32
  Tensor dy, x;  // (N, C), of dx's dtype
  Tensor gate;   // (N) f32
};

void expert_rows(Stream& stream, const ExpertRows& a);
void expert_part(Stream& stream, const ExpertPart& a);
void combine_rows(Stream& stream, const CombineRows& a);
void weigh_rows(Stream& stream, const WeighRows& a);
void gate_rows_forward(Stream& stream, const GateRowsForward& a);
void gate_rows_backward(Stream& stream, const GateRowsBackward& a);

double min_bytes(const ExpertRows& a);
double min_bytes(const ExpertPart& a);
double min_bytes(const CombineRows& a);
double min_bytes(const WeighRows& a);
double min_bytes(const GateRowsForward& a);
double min_bytes(const GateRowsBackward& a);
double flops(const ExpertRows& a);
double flops(const ExpertPart& a);
double flops(const CombineRows& a);
double flops(const WeighRows& a);
double flops(const GateRowsForward& a);
double flops(const GateRowsBackward& a);

namespace cuda {
void expert_rows(Stream& stream, const ExpertRows& a);
void expert_part(Stream& stream, const ExpertPart& a);
void combine_rows(Stream& stream, const CombineRows& a);
void weigh_rows(Stream& stream, const WeighRows& a);
void gate_rows_forward(Stream& stream, const GateRowsForward& a);
void gate_rows_backward(Stream& stream, const GateRowsBackward& a);
}  // namespace cuda

}  // namespace flatshard
