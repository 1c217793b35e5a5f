/* A hash table from a few 64-bit words to a number: keys without Python objects, so nothing of the user's is kept. */
#include "_probe.h"

/* An entry in `words`: length | number << 32, then the key. A slot: hash, offset of the entry + 1 (0 = free). */

static uint64_t hash_words(const uint64_t *key, size_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ key[i]) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    h *= 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 29;
}

static bool grow(Table *t)
{
    size_t size = t->slots ? (t->mask + 1) * 2 : 256;
    uint64_t *slots = calloc(size, 2 * sizeof *slots);
    if (!slots)
        return false;
    size_t old = t->slots ? t->mask + 1 : 0;
    for (size_t i = 0; i < old; i++) {
        if (!t->slots[2 * i + 1])
            continue;
        size_t at = t->slots[2 * i] & (size - 1);
        while (slots[2 * at + 1])
            at = (at + 1) & (size - 1);
        slots[2 * at] = t->slots[2 * i];
        slots[2 * at + 1] = t->slots[2 * i + 1];
    }
    free(t->slots);
    t->slots = slots;
    t->mask = size - 1;
    return true;
}

uint32_t table_get(const Table *t, const uint64_t *key, size_t n)
{
    if (!t->slots)
        return 0;
    uint64_t hash = hash_words(key, n);
    for (size_t at = hash & t->mask; t->slots[2 * at + 1]; at = (at + 1) & t->mask) {
        if (t->slots[2 * at] != hash)
            continue;
        const uint64_t *entry = t->words + (t->slots[2 * at + 1] - 1);
        if ((uint32_t)entry[0] == n && memcmp(entry + 1, key, n * sizeof *key) == 0)
            return (uint32_t)(entry[0] >> 32);
    }
    return 0;
}

/* Without memory nothing is kept: the number is asked for again the next time. */
uint32_t table_put(Table *t, const uint64_t *key, size_t n, uint32_t number)
{
    uint32_t first = table_get(t, key, n);
    if (first)
        return first;
    if ((!t->slots || 2 * (t->used + 1) > t->mask) && !grow(t))
        return number;
    if (t->words_used + n + 1 > t->words_size) {
        size_t size = t->words_size ? t->words_size * 2 : 1024;
        while (size < t->words_used + n + 1)
            size *= 2;
        uint64_t *words = realloc(t->words, size * sizeof *words);
        if (!words)
            return number;
        t->words = words;
        t->words_size = size;
    }
    uint64_t hash = hash_words(key, n);
    size_t at = hash & t->mask;
    while (t->slots[2 * at + 1])
        at = (at + 1) & t->mask;
    t->slots[2 * at] = hash;
    t->slots[2 * at + 1] = t->words_used + 1;
    uint64_t *entry = t->words + t->words_used;
    entry[0] = (uint64_t)number << 32 | (uint32_t)n;
    memcpy(entry + 1, key, n * sizeof *key);
    t->words_used += n + 1;
    t->used += 1;
    return number;
}

void table_clear(Table *t)
{
    free(t->slots);
    free(t->words);
    memset(t, 0, sizeof *t);
}
