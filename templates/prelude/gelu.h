// gelu for results that are rounded to bf16 or f16: with AVX-512 a third, with AVX2 half of the instructions of the formula
// with erf, whose 24 bits nobody would see.
//
// With AVX-512 gelu(x) = x * p(x); p, and what takes its place in the approximation with tanh, is a polynomial
// for each piece of the axis, as in vec_piecewise.h. Relative error below 1e-6 for x above -2.5, below 5e-5 above -4, 5e-4
// above `least`: there p is 1e-9, and below, where eager's formula has long been 0, it is 0. With AVX2 p is a power of two,
// whose exponent is a polynomial; relative errors are below 5e-6 for x above -2.5, 5e-5 above -4 and 5e-4 above -6.1, and
// with tanh about 1e-5. NaN and infinities as by the formula.
//
// The centers of pieces are the multiples of kPiece from -19 to 12 times; number n is in column n modulo 32. The coefficients
// are minimax fits (Lawson) for the relative error.
#pragma once

#include "low_math.h"

namespace icpu {

inline float gelu(float x) { return x * 0.5f * (1 + std::erf(x * float(M_SQRT1_2))); }
inline float gelu_tanh(float x) {
  return x * 0.5f * (1 + std::tanh(float(M_2_SQRTPI * M_SQRT1_2) * (x + 0.044715f * (x * x * x))));
}

#if defined(CPU_CAPABILITY_AVX512)
alignas(64) inline constexpr float kGeluPieces[5][32] = {  // of p(x) = (1 + erf(x / sqrt(2))) / 2
    {0.5f, 0.6226697f, 0.73401445f, 0.8257493f, 0.89435023f, 0.94091487f, 0.96960366f, 0.98564696f, 0.9937903f,
     0.9975421f, 0.999111f, 0.99970645f, 0.9999116f, 1.4466878e-09f, 9.273928e-09f, 5.405966e-08f, 2.8662947e-07f,
     1.3827421e-06f, 6.0714215e-06f, 2.4274474e-05f, 8.841622e-05f, 0.00029355343f, 0.0008890224f, 0.0024578979f,
     0.006209663f, 0.014353023f, 0.030396366f, 0.05908513f, 0.105649784f, 0.17425072f, 0.26598552f, 0.37733027f},
    {0.3989404f, 0.37992918f, 0.32816055f, 0.2570745f, 0.18265021f, 0.11769806f, 0.06878689f, 0.036460996f,
     0.017528178f, 0.0076423907f, 0.0030220703f, 0.0010838304f, 0.00035253132f, 8.8117185e-09f, 5.3676505e-08f,
     2.965388e-07f, 1.485776e-06f, 6.751505e-06f, 2.7824306e-05f, 0.00010399815f, 0.00035253775f, 0.001083841f,
     0.0030220847f, 0.007642405f, 0.017528186f, 0.036460992f, 0.068786874f, 0.11769803f, 0.18265018f, 0.2570745f,
     0.32816055f, 0.37992918f},
    {2.3872587e-06f, -0.059361625f, -0.10254846f, -0.120502554f, -0.11415576f, -0.09195143f, -0.06448789f,
     -0.039879583f, -0.021910623f, -0.0107474355f, -0.004722196f, -0.0018629498f, -0.0006610518f, 2.6295819e-08f,
     1.515926e-07f, 7.9025546e-07f, 3.7238085e-06f, 1.5853966e-05f, 6.0950817e-05f, 0.0002114562f, 0.000661455f,
     0.001863658f, 0.0047232048f, 0.010748499f, 0.021911182f, 0.039878927f, 0.0644856f, 0.09194791f, 0.11415231f,
     0.12050085f, 0.10254956f, 0.059365347f},
    {-0.066185996f, -0.056903735f, -0.033261333f, -0.005286295f, 0.016940555f, 0.028104318f, 0.028739402f,
     0.022975322f, 0.015357453f, 0.008837138f, 0.00444598f, 0.001973938f, 0.0007781297f, 5.2561095e-08f,
     2.849541e-07f, 1.3918781e-06f, 6.119976e-06f, 2.4195682e-05f, 8.589434e-05f, 0.00027331722f, 0.0007777762f,
     0.0019733543f, 0.0044451943f, 0.008836336f, 0.015356966f, 0.022975495f, 0.028740326f, 0.028105685f, 0.016941825f,
     -0.005285537f, -0.033261135f, -0.056903787f},
    {-9.733575e-05f, 0.014201671f, 0.022150425f, 0.02121196f, 0.013665149f, 0.0043266127f, -0.0027082076f,
     -0.005884959f, -0.005912148f, -0.004395701f, -0.0026695936f, -0.001376885f, -0.00061516446f, 6.760275e-08f,
     3.4764e-07f, 1.6027536e-06f, 6.613416e-06f, 2.4370516e-05f, 7.9977595e-05f, 0.00023287257f, 0.0005985148f,
     0.0013476848f, 0.0026280405f, 0.004351915f, 0.0058890725f, 0.005911749f, 0.0028017345f, -0.004182607f,
     -0.013524077f, -0.021142067f, -0.022195628f, -0.014353383f},
};

alignas(64) inline constexpr float kGeluTanhPieces[5][32] = {  // of p(x) = (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
    {0.5f, 0.62266034f, 0.73395383f, 0.82561f, 0.89417136f, 0.9407876f, 0.9695995f, 0.98576415f, 0.9939663f,
     0.9977069f, 0.9992269f, 0.99977154f, 0.9999415f, 0.0f, 0.0f, 4.695633e-09f, 4.5818776e-08f, 3.6270103e-07f,
     2.3599673e-06f, 1.27879275e-05f, 5.8465885e-05f, 0.00022848301f, 0.0007730769f, 0.0022930996f, 0.0060337046f,
     0.014235852f, 0.03040052f, 0.059212416f, 0.10582865f, 0.17439003f, 0.26604617f, 0.37733966f},
    {0.39894038f, 0.37984324f, 0.32792634f, 0.25684497f, 0.18265815f, 0.11800853f, 0.06922099f, 0.036768537f,
     0.017594012f, 0.0075246445f, 0.0028473728f, 0.0009422141f, 0.0002692172f, 0.0f, 0.0f, 3.5802323e-08f,
     3.1793223e-07f, 2.2828408e-06f, 1.3428022e-05f, 6.556153e-05f, 0.00026922656f, 0.0009422281f, 0.0028473896f,
     0.0075246594f, 0.017594019f, 0.036768533f, 0.069220975f, 0.11800851f, 0.18265812f, 0.25684494f, 0.32792634f,
     0.37984324f},
    {2.4414492e-06f, -0.059603956f, -0.10271564f, -0.12029531f, -0.11365339f, -0.09155885f, -0.0645046f, -0.04022622f,
     -0.022286955f, -0.010940672f, -0.0047234627f, -0.0017746263f, -0.00057310204f, 0.0f, 0.0f, 1.3278915e-07f,
     1.0628897e-06f, 6.8576524e-06f, 3.6116606e-05f, 0.00015726816f, 0.00057360507f, 0.0017754529f, 0.0047245347f,
     0.010941695f, 0.022287432f, 0.040225577f, 0.06450245f, 0.09155545f, 0.1136499f, 0.12029346f, 0.10271668f,
     0.059607733f},
    {-0.06650816f, -0.05702499f, -0.032982506f, -0.0048549026f, 0.01706176f, 0.027774787f, 0.028284991f, 0.022775166f,
     0.015471433f, 0.00906658f, 0.0046023144f, 0.0020130852f, 0.0007513031f, 0.0f, 0.0f, 3.2642558e-07f,
     2.3278615e-06f, 1.331459e-05f, 6.184002e-05f, 0.00023614844f, 0.0007507889f, 0.0020123187f, 0.0046014045f,
     0.009065762f, 0.015470999f, 0.022775358f, 0.028285857f, 0.027776087f, 0.01706302f, -0.004854112f, -0.03298228f,
     -0.057025034f},
    {-9.954555e-05f, 0.014493855f, 0.022432135f, 0.021142045f, 0.01328914f, 0.0040522665f, -0.0026283711f,
     -0.0056075286f, -0.005723886f, -0.0043952963f, -0.002765079f, -0.0014559651f, -0.0006420062f, 0.0f, 0.0f,
     4.8341803e-07f, 3.1402321e-06f, 1.6187885e-05f, 6.699322e-05f, 0.00022512421f, 0.00062114035f, 0.0014217937f,
     0.0027208626f, 0.004353157f, 0.0057042227f, 0.005633987f, 0.002716361f, -0.00391312f, -0.013146395f,
     -0.021066427f, -0.022474434f, -0.014647819f},
};

inline Reg<float> gelu_by_pieces(Reg<float> x, const float (&table)[5][32], float least) {
  constexpr float kPiece = 0.3125f;
  const Reg<float> inside = raw_max(splat_reg(least), raw_min(splat_reg(3.9f), x));
  const Reg<float> place = place_of(inside, 1 / kPiece);
  const Reg<float> rest = fma_reg(place - splat_reg(kFirstPlace), splat_reg(-kPiece), inside);
  Reg<float> slope = look_up(table[4], place);
#pragma GCC unroll 3
  for (int k = 3; k > 0; --k) slope = fma_reg(slope, rest, look_up(table[k], place));
  const auto some = _mm512_cmp_ps_mask(x, splat_reg(least), _CMP_NLT_UQ);
  return x * (Reg<float>)_mm512_maskz_fmadd_ps(some, slope, rest, look_up(table[0], place));
}

template <int U>
inline Vec<float, U> gelu(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return gelu_by_pieces(x, kGeluPieces, -6.09f); }, a);
}

template <int U>
inline Vec<float, U> gelu_tanh(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return gelu_by_pieces(x, kGeluTanhPieces, -5.3f); }, a);
}
#elif defined(CPU_CAPABILITY_AVX2)
// x p(x) with p(-|x|) = 2^q(|x|) and p(|x|) = 1 - p(-|x|). From 6.1 on p(-|x|) is 0, so that infinity gives what the formula
// gives.
inline Reg<float> low_gelu_reg(Reg<float> x) {
  const Reg<float> size = size_reg(x);
  const Reg<float> exponent = short_polynomial(
      raw_min(splat_reg(6.1f), size),
      {-1.0f, -1.1511633f, -0.45879498f, -0.05348828f, 0.008193295f, -8.258935e-04f, 4.4930763e-05f, -8.2959633e-07f});
  const auto near = (Reg<int32_t>)_mm256_cmp_ps(size, splat_reg(6.1f), _CMP_LT_OQ);
  const LowParts parts = low_parts(exponent, 1.0f);
  const auto below = (Reg<float>)((Reg<int32_t>)(low_power_of_fraction(parts.fraction) * parts.power) & near);
  return x * (Reg<float>)_mm256_blendv_ps(1.0f - below, below, x);
}

// (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y))
inline Reg<float> low_gelu_tanh_reg(Reg<float> x) {
  constexpr float kHalves = -1.44269504f * float(M_2_SQRTPI * M_SQRT1_2);  // exp(-2 y) = 4^(kHalves (x + 0.044715 x^3))
  const Reg<float> cubic = x * fma_reg(x * x, splat_reg(0.044715f), splat_reg(1.0f));
  return x / (1.0f + low_power_of_four(cubic, kHalves));
}

template <int U>
inline Vec<float, U> gelu(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return low_gelu_reg(x); }, a);
}

template <int U>
inline Vec<float, U> gelu_tanh(const Vec<float, U>& a) {
  return map([](Reg<float> x) { return low_gelu_tanh_reg(x); }, a);
}
#endif

}  // namespace icpu
