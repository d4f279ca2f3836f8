package core

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
)

// The names of keys in Redis.
//
// A lock is named prefix+key, as a person types it in redis-cli. Everything else that a lock needs, its companions,
// begins with "latchkit~" and stands in the lock's Cluster slot. A user's key that contains that word, or is longer
// than 512 bytes, is stored under a hash instead, so no user's key can name another's companion:
//
//	latchkit~key:{tag}<sha-256>     a lock whose own name will not do
//	latchkit~wait:{tag}<name>       the engines that wait for a lock, and the channel on which its release is told
//	latchkit~hold:{tag}<name>       what is known of several holders, and of those who take part in a hold
//	latchkit~line:{tag}<name>       the fair waiters, in order of arrival
//	latchkit~stamp:{tag}<name>      whose a lock of Timestamp is
//	latchkit~fence                  the fence counter; latchkit~fence:{tag} on a Cluster, one for each slot in use
//	latchkit~node                   what a RedLock's node knows of its own memory
//	latchkit~probe                  written by Probe; latchkit~probe:{tag} on a Cluster
//
// {tag} is the hash tag of the lock's name if it has one, else the whole name, which is then not repeated after it. A
// name with braces that would not survive as a tag is given a tag of the same slot from a table.
const (
	reserved    = "latchkit~"
	longestName = 512
	slots       = 16384
)

// lockName returns the name of the lock of key.
func lockName(key string) string {
	if len(key) <= longestName && !strings.Contains(key, reserved) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	tag, own := hashTag(key)
	if !own || len(tag) > longestName/4 {
		return reserved + "key:" + hex.EncodeToString(sum[:])
	}
	return reserved + "key:{" + tag + "}" + hex.EncodeToString(sum[:])
}

// companionName returns the name of a companion of the lock called name.
func companionName(what, name string) string {
	tag, own := hashTag(name)
	if own {
		return reserved + what + ":{" + tag + "}" + name
	}
	if strings.IndexByte(name, '}') >= 0 {
		return reserved + what + ":{" + slotTag(slotOf(name)) + "}" + name
	}
	return reserved + what + ":{" + name + "}"
}

// fenceName returns the name of the fence counter of a Cluster's slot.
func fenceName(slot int) string { return reserved + "fence:{" + slotTag(slot) + "}" }

// hashTag returns the part of name that decides its slot, and whether that is a tag of its own: what stands between the
// first "{" and the first "}" behind it, unless that is empty.
// Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
func hashTag(name string) (tag string, own bool) {
	open := strings.IndexByte(name, '{')
	if open < 0 {
		return name, false
	}
	length := strings.IndexByte(name[open+1:], '}')
	if length <= 0 {
		return name, false
	}
	return name[open+1 : open+1+length], true
}

// slotOf returns the Cluster slot of name.
func slotOf(name string) int {
	tag, _ := hashTag(name)
	return int(crc16(tag)) % slots
}

// slotTag returns a short tag that lies in slot.
func slotTag(slot int) string { return slotTags()[slot] }

var slotTags = sync.OnceValue(func() []string {
	tags := make([]string, slots)
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	text := make([]byte, 4)
	for n, left := 0, slots; left > 0; n++ {
		for i, rest := 3, n; i >= 0; i, rest = i-1, rest/len(digits) {
			text[i] = digits[rest%len(digits)]
		}
		if slot := int(crc16(string(text))) % slots; tags[slot] == "" {
			tags[slot] = string(text)
			left--
		}
	}
	return tags
})

// crc16 is CRC-16/XMODEM, by which a Cluster finds slots.
func crc16(s string) (crc uint16) {
	for i := 0; i < len(s); i++ {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
