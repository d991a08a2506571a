terraform {
  backend "local" {}
}

resource "terraform_data" "release" {
  input = "v1"
}

output "release" {
  value = terraform_data.release.output
}
