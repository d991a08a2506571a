package sops

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var encrypted = regexp.MustCompile(`^ENC\[AES256_GCM,data:([^,]+),iv:([^,]+),tag:([^,]+),type:(\w+)\]`)

var (
	errFormat  = errors.New("a value that must be encrypted is not in the format of SOPS")
	errDamaged = errors.New("a value cannot be decrypted: the file was changed after SOPS wrote it")
)

// dataKey decrypts the values of a file.
type dataKey []byte

// open decrypts a value in the format of SOPS. bound is the additional authenticated data, which
// binds the value to its path.
func (k dataKey) open(text, bound string) (any, error) {
	if text == "" {
		return "", nil // SOPS does not encrypt the empty string
	}
	parts := encrypted.FindStringSubmatch(text)
	if parts == nil {
		return nil, errFormat
	}
	var raw [3][]byte
	for i := range raw {
		var err error
		if raw[i], err = base64.StdEncoding.DecodeString(parts[1+i]); err != nil {
			return nil, errFormat
		}
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, errDamaged
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, max(1, len(raw[1])))
	if err != nil || len(raw[1]) == 0 {
		return nil, errFormat
	}
	plain, err := gcm.Open(nil, raw[1], append(raw[0], raw[2]...), []byte(bound))
	if err != nil {
		return nil, errDamaged
	}
	value, err := typed(string(plain), parts[4])
	if err != nil {
		return nil, errFormat
	}
	return value, nil
}

// typed parses a decrypted text as a value of a SOPS type.
func typed(text, typ string) (any, error) {
	switch typ {
	case "str", "bytes":
		return text, nil
	case "int":
		return strconv.Atoi(text)
	case "float":
		return strconv.ParseFloat(text, 64)
	case "bool":
		return strconv.ParseBool(text)
	case "time":
		var t time.Time
		err := t.UnmarshalText([]byte(text))
		return t, err
	case "comment":
		return comment(text), nil
	}
	return nil, errFormat
}

// standIn returns a replacement for an encrypted value: name(text) for a string, and the zero
// value for other types.
func standIn(text string, name func(ciphertext string) string) any {
	parts := encrypted.FindStringSubmatch(text)
	if parts == nil {
		return text
	}
	switch parts[4] {
	case "int":
		return 0
	case "float":
		return 0.0
	case "bool":
		return false
	case "time":
		return time.Time{}
	case "comment":
		return comment("")
	}
	return name(text)
}

// boundTo returns the additional authenticated data for the value at a path.
func boundTo(path []string) string { return strings.Join(path, ":") + ":" }
