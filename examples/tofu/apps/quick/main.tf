terraform {
  required_version = ">= 1.8"
  # A state must not be in the directory of the run, which is removed. Yours is in a bucket.
  backend "local" {}
}

variable "zones" {
  type = list(string)
}

resource "terraform_data" "subnet" {
  for_each = toset(var.zones)
  input    = "subnet of zone ${each.key}"
}

output "subnets" {
  value = [for s in terraform_data.subnet : s.output]
}
