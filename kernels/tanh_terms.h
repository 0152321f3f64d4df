#pragma once
// Below kTanhNear, where 1 - 2 / (e^2x + 1) would lose digits,
//   tanh x = x + kTanh3 x^3 + kTanh5 x^5 + ... + kTanh11 x^11
// a minimax fit of the relative error.

namespace flatshard {

inline constexpr float kTanhNear = 0.625f;
inline constexpr float kTanh3 = -0.3333328068256378f, kTanh5 = 0.13331441581249237f,
                       kTanh7 = -0.05373971536755562f, kTanh9 = 0.02063908614218235f,
                       kTanh11 = -0.005704986397176981f;

}  // namespace flatshard
