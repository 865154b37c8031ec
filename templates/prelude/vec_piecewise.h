// tanh and erf of float registers with AVX-512, and erf with AVX2: a polynomial for each piece of the axis, its
// coefficients looked up in registers. Inline, without a division, and with AVX-512 half as many instructions as a
// formula with exp needs.
//
// Preconditions: float lanes. Errors: below 1.4 ulp for every argument; NaN, infinities, signed zeros and denormals give
// what the exact functions give.
//
// Pieces of |x| are equally long. Row 0 of a table has their centers, row k + 1 the coefficients of (|x| - center)^k. A
// center is a float whose function value lies next to a float, so that the first coefficient has no error of rounding;
// the others are minimax fits (Lawson), rounded one after the other.
#pragma once

#include "vec_elementary.h"

namespace icpu {

// Where x >= 0 is among pieces of length 1 / density: the number of the nearest center in the low bits of the float
// `place`, which is kFirstPlace for the first one.
inline constexpr float kFirstPlace = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
inline Reg<float> place_of(Reg<float> x, float density) { return fma_reg(x, splat_reg(density), splat_reg(kFirstPlace)); }

// The entry of a row whose number is in the low bits of `place`: as many bits as rows have entries.
#if defined(CPU_CAPABILITY_AVX512)
inline Reg<float> look_up(const float (&row)[16], Reg<float> place) {
  return _mm512_permutexvar_ps((__m512i)place, _mm512_load_ps(row));
}
inline Reg<float> look_up(const float (&row)[32], Reg<float> place) {
  return _mm512_permutex2var_ps(_mm512_load_ps(row), (__m512i)place, _mm512_load_ps(row + 16));
}
#else
// Rows of eight would need fewer coefficients, but looking up among eight takes twice as long on some CPUs (Zen 3).
inline Reg<float> look_up(const float (&row)[4], Reg<float> place) {
  return _mm256_permutevar_ps(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(row)), (__m256i)place);
}
#endif

// Coefficients from the second on, as a polynomial of `rest`: (f(center + rest) - f(center)) / rest.
template <int Rows, int Pieces>
inline Reg<float> slope_at(const float (&table)[Rows][Pieces], Reg<float> place, Reg<float> rest) {
  Reg<float> sum = look_up(table[Rows - 1], place);
#pragma GCC unroll 8
  for (int k = Rows - 2; k > 1; --k) sum = fma_reg(sum, rest, look_up(table[k], place));
  return sum;
}

// Of erf(x); the first piece: of erf(x) - x.
#if defined(CPU_CAPABILITY_AVX512)
inline constexpr float kErfPiece = 0.255f;
alignas(64) inline constexpr float kErfPieces[7][16] = {
    {0.0f, 0.25406536f, 0.51121974f, 0.7659708f, 1.0221815f, 1.2765498f, 1.531217f, 1.7840457f, 2.0381165f,
     2.2973065f, 2.5496135f, 2.8064923f, 3.0594032f, 3.315822f, 3.5725489f, 3.827549f},
    {0.0f, 0.28063133f, 0.5303041f, 0.7213009f, 0.8517058f, 0.92897445f, 0.9696481f, 0.9883649f, 0.99605256f,
     0.9988414f, 0.9996887f, 0.9999278f, 0.99998486f, 0.99999726f, 0.9999996f, 0.99999994f},
    {0.12837917f, 1.0578443f, 0.86886877f, 0.6275518f, 0.39689925f, 0.22117585f, 0.108192496f, 0.046792287f,
     0.017718669f, 0.005759902f, 0.0016955526f, 4.283309e-4f, 9.715869e-5f, 1.8946477e-5f, 3.232279e-6f, 4.899374e-7f},
    {0.0f, -0.26875705f, -0.44417745f, -0.48068368f, -0.4057037f, -0.2823444f, -0.16566831f, -0.08348046f,
     -0.03611255f, -0.013231895f, -0.004322709f, -0.0012019062f, -2.9713236e-4f, -6.273291e-5f, -2.0865551e-5f,
     -3.1045379e-6f},
    {-0.37612307f, -0.30711472f, -0.13828221f, 0.036272515f, 0.14416635f, 0.16655855f, 0.13305305f, 0.08369147f,
     0.04316203f, 0.0183452f, 0.0067827296f, 0.002105968f, 5.738401e-4f, 1.3254576e-4f, 2.3512923e-5f, 3.7808175e-6f},
    {0.0f, 0.1276805f, 0.18229878f, 0.14578275f, 0.06169646f, -0.0117060905f, -0.046227418f, -0.04665497f,
     -0.031962417f, -0.016731985f, -0.007264508f, -0.002588933f, -7.9520454e-4f, -2.0751124e-4f, 5.2408566e-4f,
     7.210823e-5f},
    {0.112217054f, 0.079724096f, 0.0061853034f, -0.055088777f, -0.068085454f, -0.043831553f, -0.011634311f,
     0.008158075f, 0.013030628f, 0.009838495f, 0.0053271046f, 0.0022683546f, 7.881831e-4f, 2.264234e-4f,
     4.1479003e-4f, 1.2474222e-4f},
};
#else
inline constexpr float kErfPiece = 1.1265f;
alignas(16) inline constexpr float kErfPieces[10][4] = {
    {0.0f, 1.1267794f, 2.2528837f, 3.3819642f},
    {0.0f, 0.88895345f, 0.99855775f, 0.9999983f},
    {0.12837917f, 0.3170013f, 0.007050287f, 1.2158986e-05f},
    {1.9817742e-07f, -0.35719153f, -0.015883192f, -4.113616e-05f},
    {-0.37613395f, 0.16264427f, 0.021500556f, 8.899958e-05f},
    {0.00011129179f, 0.027457977f, -0.018930942f, -0.00013646857f},
    {0.11202537f, -0.061091486f, 0.010662656f, 0.00015437524f},
    {0.0032697825f, 0.015399251f, -0.0029110846f, -0.00014013893f},
    {-0.034344546f, 0.009239469f, -0.00088856055f, 0.00011369351f},
    {0.00933539f, -0.005136452f, 0.00097145286f, -5.7676323e-05f},
};
#endif

// In the first piece x + (erf(x) - x): two over the root of pi, as one float, would be off by half a unit.
inline Reg<float> erf_reg(Reg<float> x) {
  const Reg<float> size = raw_min(splat_reg(3.94f), size_reg(x));  // 1 from 3.92 on
  const Reg<float> place = place_of(size, 1 / kErfPiece);
  const Reg<float> rest = size - look_up(kErfPieces[0], place);
  const Reg<float> start = place == splat_reg(kFirstPlace) ? size : look_up(kErfPieces[1], place);
  return with_sign_of(fma_reg(slope_at(kErfPieces, place, rest), rest, start), x);
}

#if defined(CPU_CAPABILITY_AVX512)
alignas(64) inline constexpr float kTanhPieces[8][32] = {  // of tanh(x)
    {0.0f, 0.28933027f, 0.5819513f, 0.8751962f, 1.164503f, 1.4581505f, 1.7475517f, 2.0408638f, 2.3315551f, 2.622782f,
     2.913633f, 3.2046294f, 3.4985583f, 3.7901125f, 4.082731f, 4.3743634f, 4.665969f, 4.957331f, 5.2483487f,
     5.5412817f, 5.832851f, 6.12365f, 6.414435f, 6.7074137f, 6.9983826f, 7.2845855f, 7.5760856f, 7.8675857f,
     8.159085f, 8.450585f, 8.742085f, 9.039413f},
    {0.0f, 0.28151828f, 0.52408224f, 0.7040046f, 0.82250196f, 0.8972928f, 0.94109625f, 0.9668037f, 0.9813023f,
     0.9895136f, 0.99412507f, 0.9967129f, 0.99817264f, 0.9989796f, 0.99943155f, 0.9996827f, 0.9998229f, 0.9999011f,
     0.99994475f, 0.99996924f, 0.99998283f, 0.9999904f, 0.99999464f, 0.999997f, 0.99999833f, 0.99999905f,
     0.99999946f, 0.9999997f, 0.9999998f, 0.9999999f, 0.99999994f, 1.0f},
    {1.0f, 0.92074746f, 0.7253378f, 0.50437754f, 0.32349053f, 0.19486564f, 0.114337854f, 0.06529055f, 0.037045754f,
     0.020862883f, 0.011715349f, 0.006563349f, 0.003651379f, 0.0020397026f, 0.0011365752f, 6.3445145e-4f,
     3.541392e-4f, 1.9775792e-4f, 1.1050404e-4f, 6.151079e-5f, 3.4332174e-5f, 1.9192032e-5f, 1.0728784e-5f,
     5.9713484e-6f, 3.336949e-6f, 1.8825358e-6f, 1.0508634e-6f, 5.8661715e-7f, 3.2743722e-7f, 1.8274316e-7f,
     1.02025126e-7f, 1.7882782e-7f},
    {0.0f, -0.2592072f, -0.38013697f, -0.35508412f, -0.26607162f, -0.17485152f, -0.10760243f, -0.06312295f,
     -0.036352906f, -0.020644143f, -0.011646525f, -0.006541832f, -0.0036446047f, -0.0020375967f, -0.0011356788f,
     -6.3468533e-4f, -3.5397612e-4f, -1.9753071e-4f, -1.105386e-4f, -6.1358965e-5f, -3.445071e-5f, -1.8960114e-5f,
     -1.0717016e-5f, -1.0344608e-5f, -2.944192e-6f, 8.058849e-6f, 7.771874e-6f, 3.191401e-6f, 1.1768994e-5f,
     2.212467e-5f, 6.7831447e-6f, -1.5352862e-5f},
    {-0.33332288f, -0.23394324f, -0.042563703f, 0.08185231f, 0.11101497f, 0.091938786f, 0.06315229f, 0.039264273f,
     0.023324775f, 0.013473307f, 0.0076729665f, 0.0043324754f, 0.0024209167f, 0.0013556345f, 7.5637765e-4f,
     4.2264658e-4f, 2.3594862e-4f, 1.3175994e-4f, 7.366064e-5f, 4.0975112e-5f, 2.2911625e-5f, 1.2751296e-5f,
     7.151048e-6f, 4.6330288e-6f, 2.20922e-6f, 2.7366646e-6f, 2.015585e-6f, 9.542164e-7f, 2.0208274e-6f,
     3.446176e-6f, 1.0941476e-6f, -4.3526266e-5f},
    {0.0f, 0.15224409f, 0.14905165f, 0.060741775f, -0.0026152022f, -0.024213085f, -0.023621975f, -0.01694368f,
     -0.010792987f, -0.0064461543f, -0.0037454502f, -0.0021307857f, -0.0012141117f, -6.780885e-4f, -4.0816478e-4f,
     -1.5745053e-4f, -1.302178e-4f, -9.143375e-5f, -3.1832733e-5f, -3.85574e-5f, 2.9100459e-6f, -3.4794703e-5f,
     -5.0110207e-6f, 5.264154e-4f, -4.851205e-5f, -0.0012017902f, -0.0010663552f, -4.566744e-4f, -0.0014616481f,
     -0.0026953367f, -8.3193084e-4f, 0.0014489875f},
    {0.1317455f, 0.055416107f, -0.046815265f, -0.058480848f, -0.02776977f, -0.004725787f, 0.0036209072f,
     0.0047070123f, 0.0036176818f, 0.0023586263f, 0.0014291555f, 8.3431543e-4f, 4.7469532e-4f, 2.6867702e-4f,
     1.5416673e-4f, 7.8629935e-5f, 4.8407972e-5f, 2.9463397e-5f, 1.4464605e-5f, 1.013403e-5f, 2.8618122e-6f,
     5.384039e-6f, 1.5324225e-6f, -6.344006e-5f, 2.8205325e-6f, -1.4573781e-4f, -1.2942529e-4f, -5.5404842e-5f,
     -1.7757987e-4f, -3.2754694e-4f, -1.01094185e-4f, 0.002051715f},
    {0.0f, -0.070831016f, -0.034170635f, 0.012793411f, 0.017529989f, 0.00838135f, 0.0037097656f, 4.173145e-4f,
     -8.4099214e-5f, -7.7709224e-4f, -4.3533935e-4f, -4.7071002e-4f, 2.3366115e-4f, 5.9699787e-6f, 9.047888e-4f,
     -0.0016828742f, 3.6337614e-4f, 7.830606e-4f, -1.589363e-4f, 5.472498e-4f, -4.3916685e-4f, 8.713767e-4f,
     4.3809607e-5f, -0.016155817f, 0.0014452793f, 0.036723927f, 0.032591734f, 0.013956271f, 0.044684526f,
     0.08240446f, 0.025434168f, -0.03584723f},
};

inline Reg<float> tanh_reg(Reg<float> x) {
  // The last polynomial is 1 from 9.02 to 9.09, and less after that: what uses 1 - tanh(x)^2 would see it.
  const Reg<float> size = raw_min(splat_reg(9.05f), size_reg(x));
  const Reg<float> place = place_of(size, 1 / 0.2915f);
  const Reg<float> rest = size - look_up(kTanhPieces[0], place);
  return with_sign_of(fma_reg(slope_at(kTanhPieces, place, rest), rest, look_up(kTanhPieces[1], place)), x);
}
#endif

}  // namespace icpu
