"""The kernels of the caches as CUDA C++ text.

One text for each element type; NVRTC compiles it where there is a GPU. A block of threads serves
one query row and head, and goes through the keys a tile at a time: one thread per key for the
scores, one per feature for the output. Every loop strides by the size of the block, so that a
block of one thread is right too: that is how the text is run without a GPU, as plain C++.
No header is included. Counterpart: TVM's attention kernels for CUDA.

Examples
--------
>>> text = source("float16")
>>> "__global__ void attend" in text, "#define KIND 1" in text
(True, True)
"""

from typing import Final

__all__ = ["LAYOUTS", "MASKS", "MOST_FEATURES", "source"]

LAYOUTS: Final = {"pages": 0, "ragged": 1, "latent": 2}
"""How keys are stored."""

MASKS: Final = {"none": 0, "causal": 1, "window": 2, "ragged_tree": 3, "paged_tree": 4}
"""Who sees whom."""

MOST_FEATURES: Final = 1024
"""Largest head size."""

_KINDS: Final = {"float32": 0, "float16": 1, "bfloat16": 2}


def source(dtype: str) -> str:
    """Return the text for an element type: ``float32``, ``float16`` or ``bfloat16``.

    Raises
    ------
    ValueError
        If it is another type.
    """
    if dtype not in _KINDS:
        raise ValueError(f"CUDA attention: expected one of {', '.join(_KINDS)}, got {dtype!r}")
    element = "float" if dtype == "float32" else "unsigned short"
    layouts = "".join(f"#define LAYOUT_{name.upper()} {n}\n" for name, n in LAYOUTS.items())
    masks = "".join(f"#define MASK_{name.upper()} {n}\n" for name, n in MASKS.items())
    return (
        f"#define KIND {_KINDS[dtype]}\n#define MOST {MOST_FEATURES}\n{layouts}{masks}"
        f"typedef {element} T;\n{_NUMBERS}{_ATTEND}{_MOVES}"
    )


_NUMBERS: Final = r"""
#ifdef __CUDA_ARCH__
#define COPY memcpy
#else
#define COPY __builtin_memcpy
#endif
#define TILE 128
#define START -5.0e4f
#define HIDDEN -3.0e38f  // its weight is zero beside any maximum

// sixteen-bit floats are handled as bits, so that no header is needed
__device__ static float number(T bits) {
#if KIND == 0
  return bits;
#elif KIND == 1 && defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#elif KIND == 1
  _Float16 h;
  COPY(&h, &bits, 2);
  return (float)h;
#else
  unsigned int wide = (unsigned int)bits << 16;
  float x;
  COPY(&x, &wide, 4);
  return x;
#endif
}

__device__ static T stored(float x) {
#if KIND == 0
  return x;
#elif KIND == 1 && defined(__CUDA_ARCH__)
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#elif KIND == 1
  _Float16 h = (_Float16)x;
  unsigned short bits;
  COPY(&bits, &h, 2);
  return bits;
#else
  unsigned int wide;
  COPY(&wide, &x, 4);
  if ((wide & 0x7fffffffu) > 0x7f800000u) return (T)((wide >> 16) | 0x40u);
  return (T)((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
#endif
}

// feature d of a row rotated at a position; interleaved pairs are neighbours
__device__ static float turned(const T* row, int d, int features, int position, float scale,
                               const float* frequencies, float magnitude, int interleaved) {
  float x = number(row[d]);
  if (d >= features) return x;
  int half = features / 2, low = interleaved ? d % 2 == 0 : d < half;
  int apart = interleaved ? 1 : half;
  float partner = low ? -number(row[d + apart]) : number(row[d - apart]);
  float angle = (float)position * scale * frequencies[d];
  return x * (cosf(angle) * magnitude) + partner * (sinf(angle) * magnitude);
}
"""

_ATTEND: Final = r"""
// the largest value, or the sum, over the threads of a block (a power of two of them)
__device__ static float over_block(float x, float* room, int maximum) {
  __syncthreads();
  room[threadIdx.x] = x;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) {
      float a = room[threadIdx.x], b = room[threadIdx.x + step];
      room[threadIdx.x] = maximum ? (a > b ? a : b) : a + b;
    }
    __syncthreads();
  }
  return room[0];
}

extern "C" __global__ void attend(
    const T* q, const int* q_indptr, const T* k, const T* v, const int* kv_indptr,
    const int* page_indptr, const int* page_values, const int* length_info,
    const int* k_rope_offset, const int* q_rope_position, const int* tree_indptr,
    const int* tree_order, T* out, float* lse, const float* frequencies, int chunks, int heads,
    int kv_heads, int dim, int v_dim, int page_size, int layout, int info_rows, int mask,
    int window, int rotary, int interleaved, float rope_scale, float magnitude, float sm_scale) {
  __shared__ float query[MOST];
  __shared__ float sum[MOST];
  __shared__ float weight[TILE];
  __shared__ float room[1024];
  int token = blockIdx.x, head = blockIdx.y, kv_head = head / (heads / kv_heads);

  // the chunk of this row: the last one that begins at or before it
  int chunk = token;
  if (q_indptr) {
    int low = 0, high = chunks;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      if (q_indptr[middle] <= token) low = middle; else high = middle;
    }
    chunk = low;
  }
  int first_row = q_indptr ? q_indptr[chunk] : token;
  int rows = q_indptr ? q_indptr[chunk + 1] - first_row : 1, row = token - first_row;

  int keys = 0, sink = 0, offset = 0;
  if (layout == LAYOUT_RAGGED) {
    keys = kv_indptr[chunk + 1] - kv_indptr[chunk];
  } else {
    int pages = page_indptr[chunk + 1] - page_indptr[chunk];
    if (info_rows == 3) {
      offset = length_info[chunks + chunk];
      sink = length_info[2 * chunks + chunk];
    }
    if (pages > 0) keys = (pages - 1) * page_size + length_info[chunk] - offset + sink;
  }

  const T* q_row = q + ((long long)token * heads + head) * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float x = number(q_row[d]);
    if (rotary)
      x = number(stored(turned(q_row, d, dim, q_rope_position[token], rope_scale, frequencies,
                               magnitude, interleaved)));
    query[d] = x;
  }
  for (int d = threadIdx.x; d < v_dim; d += blockDim.x) sum[d] = 0.0f;

  int from = 0, to = keys, nodes = 0, before = 0;
  const int* order = 0;
  if (mask == MASK_CAUSAL) to = keys - rows + row + 1;
  if (mask == MASK_WINDOW) {
    int back = window - row - 1;
    from = keys - (back > 0 ? back : 0);
  }
  if (mask == MASK_RAGGED_TREE || mask == MASK_PAGED_TREE) {
    nodes = tree_indptr[chunk + 1] - tree_indptr[chunk];
    order = tree_order + 2 * tree_indptr[chunk];
    before = keys - nodes;
  }
  if (from < 0) from = 0;
  if (to > keys) to = keys;
  int visit = nodes ? order[2 * (nodes - rows + row)] : 0;

  float top = START, total = 1.0f;
  for (int tile = from; tile < to; tile += TILE) {
    int count = to - tile < TILE ? to - tile : TILE;
    float best = START;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      int key = tile + i, seen = 1;
      if (nodes && key >= before) {
        const int* node = order + 2 * (key - before);
        seen = node[0] <= visit && visit < node[1];
      }
      float score = HIDDEN;
      if (seen) {
        const T* k_row;
        int position = 0;
        if (layout == LAYOUT_RAGGED) {
          int at = kv_indptr[chunk] + key;
          k_row = k + ((long long)at * kv_heads + kv_head) * dim;
          if (rotary)
            position = mask == MASK_RAGGED_TREE ? q_rope_position[at] : k_rope_offset[chunk] + key;
        } else {
          int place = key < sink ? key : key - sink + offset;
          long long page = page_values[page_indptr[chunk] + place / page_size];
          int slot = place % page_size;
          if (layout == LAYOUT_PAGES)
            k_row = k + ((page * 2 * kv_heads + kv_head) * page_size + slot) * dim;
          else
            k_row = k + (page * page_size + slot) * dim;
          if (rotary) position = k_rope_offset[chunk] + key;
        }
        score = 0.0f;
        for (int d = 0; d < dim; d++) {
          float x = number(k_row[d]);
          if (rotary)
            x = number(stored(turned(k_row, d, dim, position, rope_scale, frequencies, magnitude,
                                     interleaved)));
          score += query[d] * x;
        }
        score *= sm_scale * 1.44269504088896340736f;
      }
      weight[i] = score;
      if (score > best) best = score;
    }
    best = over_block(best, room, 1);
    float next = best > top ? best : top, shrink = exp2f(top - next), mine = 0.0f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      float w = exp2f(weight[i] - next);
      weight[i] = w;
      mine += w;
    }
    total = total * shrink + over_block(mine, room, 0);
    top = next;
    for (int d = threadIdx.x; d < v_dim; d += blockDim.x) {
      float x = sum[d] * shrink;
      for (int i = 0; i < count; i++) {
        if (weight[i] == 0.0f) continue;  // what a hidden key's row holds does not matter
        int key = tile + i;
        const T* v_row;
        if (layout == LAYOUT_RAGGED) {
          v_row = v + ((long long)(kv_indptr[chunk] + key) * kv_heads + kv_head) * v_dim;
        } else {
          int place = key < sink ? key : key - sink + offset;
          long long page = page_values[page_indptr[chunk] + place / page_size];
          int slot = place % page_size;
          if (layout == LAYOUT_PAGES)
            v_row = k + (((page * 2 + 1) * kv_heads + kv_head) * page_size + slot) * dim;
          else
            v_row = k + (page * page_size + slot) * dim;
        }
        x += weight[i] * number(v_row[d]);
      }
      sum[d] = x;
    }
    __syncthreads();
  }
  T* out_row = out + ((long long)token * heads + head) * v_dim;
  for (int d = threadIdx.x; d < v_dim; d += blockDim.x) out_row[d] = stored(sum[d] / total);
  if (threadIdx.x == 0) lse[(long long)token * heads + head] = top + log2f(total);
}
"""

_MOVES: Final = r"""
extern "C" __global__ void append(T* pages, const T* k, const T* v, const int* slots, int kv_heads,
                                  int page_size, int dim) {
  int token = blockIdx.x, head = blockIdx.y, slot = slots[token];
  if (slot < 0) return;
  long long page = slot / page_size;
  T* to = pages + ((page * 2 * kv_heads + head) * page_size + slot % page_size) * dim;
  long long from = ((long long)token * kv_heads + head) * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    to[d] = k[from + d];
    to[(long long)kv_heads * page_size * dim + d] = v[from + d];
  }
}

extern "C" __global__ void append_latent(T* pages, const T* rows, const int* slots, int dim) {
  int token = blockIdx.x;
  if (slots[token] < 0) return;
  for (int d = threadIdx.x; d < dim; d += blockDim.x)
    pages[(long long)slots[token] * dim + d] = rows[(long long)token * dim + d];
}

extern "C" __global__ void split_rotary(const T* qkv, const int* positions, T* q, T* k, T* v,
                                        const float* frequencies, int heads, int kv_heads, int dim,
                                        int features, int rotates, int interleaved, float scale,
                                        float magnitude) {
  int token = blockIdx.x, head = blockIdx.y;
  const T* row = qkv + ((long long)token * (heads + 2 * kv_heads) + head) * dim;
  T* to;
  if (head < heads) to = q + ((long long)token * heads + head) * dim;
  else if (head < heads + kv_heads) to = k + ((long long)token * kv_heads + head - heads) * dim;
  else to = v + ((long long)token * kv_heads + head - heads - kv_heads) * dim;
  int turns = rotates && head < heads + kv_heads;
  for (int d = threadIdx.x; d < dim; d += blockDim.x)
    to[d] = turns ? stored(turned(row, d, features, positions[token], scale, frequencies,
                                  magnitude, interleaved))
                  : row[d];
}

extern "C" __global__ void merge(T* v, float* s, const T* v_other, const float* s_other, int dim) {
  long long row = blockIdx.x;
  float a = s[row], b = s_other[row], top = a > b ? a : b;
  float mine = exp2f(a - top), other = exp2f(b - top), both = mine + other;
  T* first = v + row * dim;
  const T* second = v_other + row * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x)
    first[d] = stored(number(first[d]) * (mine / both) + number(second[d]) * (other / both));
  __syncthreads();
  if (threadIdx.x == 0) s[row] = top + log2f(both);
}

// rows of a page lie one after the other for each of its parts: keys and values of each head
extern "C" __global__ void copy_page(T* pages, int source, int target, int rows, int parts,
                                     int page_size, int dim) {
  long long size = (long long)page_size * dim, page = parts * size;
  const T* from = pages + source * page + blockIdx.x * size;
  T* to = pages + target * page + blockIdx.x * size;
  for (int i = threadIdx.x; i < rows * dim; i += blockDim.x) to[i] = from[i];
}

extern "C" __global__ void compact(T* pages, const int* pairs, int count, int stride, int parts,
                                   int page_size, int dim) {
  long long size = (long long)page_size * dim, page = parts * size, part = blockIdx.x * size;
  for (int i = 0; i < count; i++) {  // in order: a target may be a later source
    int source = pairs[i], target = pairs[stride + i];
    const T* from = pages + source / page_size * page + part + source % page_size * dim;
    T* to = pages + target / page_size * page + part + target % page_size * dim;
    for (int d = threadIdx.x; d < dim; d += blockDim.x) to[d] = from[d];
    __syncthreads();
  }
}

extern "C" __global__ void read_back(const T* pages, const int* slots, T* k, T* v, int layer,
                                     int tokens, int kv_heads, int page_size, int dim) {
  int token = blockIdx.x, head = blockIdx.y;
  long long page = slots[token] / page_size, row = slots[token] % page_size;
  const T* from = pages + ((page * 2 * kv_heads + head) * page_size + row) * dim;
  long long to = (((long long)layer * tokens + token) * kv_heads + head) * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    k[to + d] = from[d];
    v[to + d] = from[(long long)kv_heads * page_size * dim + d];
  }
}

extern "C" __global__ void read_back_latent(const T* pages, const int* slots, T* rows, int layer,
                                            int tokens, int dim) {
  long long to = ((long long)layer * tokens + blockIdx.x) * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x)
    rows[to + d] = pages[(long long)slots[blockIdx.x] * dim + d];
}
"""
