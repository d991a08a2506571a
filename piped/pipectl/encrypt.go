package pipectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// maxPlaintext bounds the size of a secret, in bytes.
const maxPlaintext = 10 << 20

func newEncrypt(t *tool) *cobra.Command {
	req := &apiservice.EncryptRequest{}
	var file string
	cmd := &cobra.Command{
		Use:   "encrypt",
		Short: "Encrypt the plaintext entered in either stdin or the --input-file flag.",
		Example: `  pipectl encrypt --piped-id=xxx <secret.txt
  pipectl encrypt --piped-id=xxx --input-file=secret.txt`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Plaintext, err = plaintext(cmd.InOrStdin(), file); err != nil {
				return err
			}
			resp, err := ask(cmd, t, func(ctx context.Context, c *client) (*apiservice.EncryptResponse, error) {
				return c.Encrypt(ctx, req)
			})
			if err != nil {
				return encryptFailed(err, req.Plaintext)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), resp.GetCiphertext())
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.PipedId, "piped-id", "", "The ID of the agent that is to read the secret.")
	flags.StringVar(&file, "input-file", "", "Path to the file to be encrypted.")
	flags.BoolVar(&req.Base64Encoding, "use-base64-encoding", false, "Encode the plaintext in base64 before it is encrypted.")
	return required(cmd, "piped-id")
}

func encryptFailed(err error, plaintext string) error {
	err = unknownPiped(failed("failed to encrypt", err))
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return hint(err, "set spec.secretManagement in the agent's configuration, with a key pair")
	case !utf8.ValidString(plaintext):
		return hint(err, "the input is not UTF-8 text, so it was not sent: encrypt its base64, and decode that where the secret is used")
	}
	return err
}

// plaintext reads a file, or stdin without one. It retains a trailing newline, which is
// part of the secret.
func plaintext(stdin io.Reader, file string) (string, error) {
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", hint(fmt.Errorf("failed to read the plaintext: %w", err), "check --input-file")
		}
		defer func() { _ = f.Close() }() // opened for reading only
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxPlaintext+1))
	if err != nil {
		return "", fmt.Errorf("failed to read the plaintext: %w", err)
	}
	if len(data) > maxPlaintext {
		return "", hint(errors.New("input data exceeds set limit 10 MB"), "encrypt a key that fits, and the data with that key")
	}
	return string(data), nil
}
