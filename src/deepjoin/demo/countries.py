"""Facts about countries: codes, capitals, rounded populations, names in other tongues."""

from __future__ import annotations

from typing import NamedTuple

from deepjoin.demo.sheets import records


class Country(NamedTuple):
    """A country by its English short name, with its keys in other tables."""

    name: str
    iso2: str
    iso3: str
    capital: str
    continent: str
    #: Rounded, about 2023.
    millions: str
    currency: str
    calling_code: str
    official_name: str

    @property
    def population(self) -> int:
        """Count the people, to the precision of ``millions``."""
        return round(float(self.millions) * 1_000_000)


_FACTS = """
Albania|AL|ALB|Tirana|Europe|2.8|ALL|355|Republic of Albania
Algeria|DZ|DZA|Algiers|Africa|46|DZD|213|People's Democratic Republic of Algeria
Argentina|AR|ARG|Buenos Aires|South America|46|ARS|54|Argentine Republic
Australia|AU|AUS|Canberra|Oceania|27|AUD|61|Commonwealth of Australia
Austria|AT|AUT|Vienna|Europe|9.1|EUR|43|Republic of Austria
Bangladesh|BD|BGD|Dhaka|Asia|170|BDT|880|People's Republic of Bangladesh
Belgium|BE|BEL|Brussels|Europe|11.7|EUR|32|Kingdom of Belgium
Brazil|BR|BRA|Brasília|South America|210|BRL|55|Federative Republic of Brazil
Canada|CA|CAN|Ottawa|North America|40|CAD|1|Canada
Chile|CL|CHL|Santiago|South America|20|CLP|56|Republic of Chile
China|CN|CHN|Beijing|Asia|1410|CNY|86|People's Republic of China
Colombia|CO|COL|Bogotá|South America|52|COP|57|Republic of Colombia
Costa Rica|CR|CRI|San José|North America|5|CRC|506|Republic of Costa Rica
Croatia|HR|HRV|Zagreb|Europe|3.9|EUR|385|Republic of Croatia
Czechia|CZ|CZE|Prague|Europe|11|CZK|420|Czech Republic
Côte d'Ivoire|CI|CIV|Yamoussoukro|Africa|31|XOF|225|Republic of Côte d'Ivoire
Denmark|DK|DNK|Copenhagen|Europe|5.9|DKK|45|Kingdom of Denmark
Ecuador|EC|ECU|Quito|South America|18|USD|593|Republic of Ecuador
Egypt|EG|EGY|Cairo|Africa|110|EGP|20|Arab Republic of Egypt
Estonia|EE|EST|Tallinn|Europe|1.4|EUR|372|Republic of Estonia
Ethiopia|ET|ETH|Addis Ababa|Africa|130|ETB|251|Federal Democratic Republic of Ethiopia
Fiji|FJ|FJI|Suva|Oceania|0.9|FJD|679|Republic of Fiji
Finland|FI|FIN|Helsinki|Europe|5.6|EUR|358|Republic of Finland
France|FR|FRA|Paris|Europe|68|EUR|33|French Republic
Georgia|GE|GEO|Tbilisi|Asia|3.7|GEL|995|Georgia
Germany|DE|DEU|Berlin|Europe|84|EUR|49|Federal Republic of Germany
Ghana|GH|GHA|Accra|Africa|34|GHS|233|Republic of Ghana
Greece|GR|GRC|Athens|Europe|10.4|EUR|30|Hellenic Republic
Hungary|HU|HUN|Budapest|Europe|9.6|HUF|36|Hungary
Iceland|IS|ISL|Reykjavik|Europe|0.4|ISK|354|Iceland
India|IN|IND|New Delhi|Asia|1440|INR|91|Republic of India
Indonesia|ID|IDN|Jakarta|Asia|280|IDR|62|Republic of Indonesia
Iran|IR|IRN|Tehran|Asia|90|IRR|98|Islamic Republic of Iran
Iraq|IQ|IRQ|Baghdad|Asia|45|IQD|964|Republic of Iraq
Ireland|IE|IRL|Dublin|Europe|5.3|EUR|353|Ireland
Italy|IT|ITA|Rome|Europe|59|EUR|39|Italian Republic
Japan|JP|JPN|Tokyo|Asia|124|JPY|81|Japan
Jordan|JO|JOR|Amman|Asia|11.5|JOD|962|Hashemite Kingdom of Jordan
Kazakhstan|KZ|KAZ|Astana|Asia|20|KZT|7|Republic of Kazakhstan
Kenya|KE|KEN|Nairobi|Africa|55|KES|254|Republic of Kenya
Latvia|LV|LVA|Riga|Europe|1.9|EUR|371|Republic of Latvia
Lithuania|LT|LTU|Vilnius|Europe|2.9|EUR|370|Republic of Lithuania
Luxembourg|LU|LUX|Luxembourg|Europe|0.7|EUR|352|Grand Duchy of Luxembourg
Madagascar|MG|MDG|Antananarivo|Africa|31|MGA|261|Republic of Madagascar
Malaysia|MY|MYS|Kuala Lumpur|Asia|35|MYR|60|Malaysia
Malta|MT|MLT|Valletta|Europe|0.5|EUR|356|Republic of Malta
Mexico|MX|MEX|Mexico City|North America|130|MXN|52|United Mexican States
Mongolia|MN|MNG|Ulaanbaatar|Asia|3.5|MNT|976|Mongolia
Morocco|MA|MAR|Rabat|Africa|37|MAD|212|Kingdom of Morocco
Namibia|NA|NAM|Windhoek|Africa|3|NAD|264|Republic of Namibia
Nepal|NP|NPL|Kathmandu|Asia|30|NPR|977|Nepal
Netherlands|NL|NLD|Amsterdam|Europe|18|EUR|31|Kingdom of the Netherlands
New Zealand|NZ|NZL|Wellington|Oceania|5.2|NZD|64|New Zealand
Nigeria|NG|NGA|Abuja|Africa|230|NGN|234|Federal Republic of Nigeria
Norway|NO|NOR|Oslo|Europe|5.5|NOK|47|Kingdom of Norway
Pakistan|PK|PAK|Islamabad|Asia|250|PKR|92|Islamic Republic of Pakistan
Panama|PA|PAN|Panama City|North America|4.5|PAB|507|Republic of Panama
Peru|PE|PER|Lima|South America|34|PEN|51|Republic of Peru
Philippines|PH|PHL|Manila|Asia|115|PHP|63|Republic of the Philippines
Poland|PL|POL|Warsaw|Europe|38|PLN|48|Republic of Poland
Portugal|PT|PRT|Lisbon|Europe|10.6|EUR|351|Portuguese Republic
Qatar|QA|QAT|Doha|Asia|3|QAR|974|State of Qatar
Romania|RO|ROU|Bucharest|Europe|19|RON|40|Romania
Russia|RU|RUS|Moscow|Europe|144|RUB|7|Russian Federation
Rwanda|RW|RWA|Kigali|Africa|14|RWF|250|Republic of Rwanda
Saudi Arabia|SA|SAU|Riyadh|Asia|33|SAR|966|Kingdom of Saudi Arabia
Senegal|SN|SEN|Dakar|Africa|18|XOF|221|Republic of Senegal
Serbia|RS|SRB|Belgrade|Europe|6.6|RSD|381|Republic of Serbia
Singapore|SG|SGP|Singapore|Asia|6|SGD|65|Republic of Singapore
Slovakia|SK|SVK|Bratislava|Europe|5.4|EUR|421|Slovak Republic
Slovenia|SI|SVN|Ljubljana|Europe|2.1|EUR|386|Republic of Slovenia
South Africa|ZA|ZAF|Pretoria|Africa|63|ZAR|27|Republic of South Africa
South Korea|KR|KOR|Seoul|Asia|52|KRW|82|Republic of Korea
Spain|ES|ESP|Madrid|Europe|48|EUR|34|Kingdom of Spain
Sweden|SE|SWE|Stockholm|Europe|10.5|SEK|46|Kingdom of Sweden
Switzerland|CH|CHE|Bern|Europe|8.9|CHF|41|Swiss Confederation
Tanzania|TZ|TZA|Dodoma|Africa|67|TZS|255|United Republic of Tanzania
Thailand|TH|THA|Bangkok|Asia|72|THB|66|Kingdom of Thailand
Tunisia|TN|TUN|Tunis|Africa|12|TND|216|Republic of Tunisia
Turkey|TR|TUR|Ankara|Asia|85|TRY|90|Republic of Türkiye
Ukraine|UA|UKR|Kyiv|Europe|38|UAH|380|Ukraine
United Arab Emirates|AE|ARE|Abu Dhabi|Asia|10|AED|971|United Arab Emirates
United Kingdom|GB|GBR|London|Europe|68|GBP|44|United Kingdom of Great Britain and Northern Ireland
United States|US|USA|Washington, D.C.|North America|340|USD|1|United States of America
Uruguay|UY|URY|Montevideo|South America|3.4|UYU|598|Oriental Republic of Uruguay
Vietnam|VN|VNM|Hanoi|Asia|100|VND|84|Socialist Republic of Viet Nam
"""

COUNTRIES = tuple(Country(*fields) for fields in records(_FACTS))
BY_ISO2 = {country.iso2: country for country in COUNTRIES}
BY_NAME = {country.name: country for country in COUNTRIES}

#: ISO-2 code, German name, German name of the capital.
GERMAN_NAMES = records("""
DE|Deutschland|Berlin
AT|Österreich|Wien
CH|Schweiz|Bern
FR|Frankreich|Paris
IT|Italien|Rom
ES|Spanien|Madrid
PT|Portugal|Lissabon
GB|Vereinigtes Königreich|London
IE|Irland|Dublin
NL|Niederlande|Amsterdam
BE|Belgien|Brüssel
LU|Luxemburg|Luxemburg
DK|Dänemark|Kopenhagen
SE|Schweden|Stockholm
NO|Norwegen|Oslo
FI|Finnland|Helsinki
IS|Island|Reykjavík
PL|Polen|Warschau
CZ|Tschechien|Prag
SK|Slowakei|Bratislava
HU|Ungarn|Budapest
SI|Slowenien|Ljubljana
HR|Kroatien|Zagreb
RS|Serbien|Belgrad
RO|Rumänien|Bukarest
GR|Griechenland|Athen
AL|Albanien|Tirana
MT|Malta|Valletta
TR|Türkei|Ankara
UA|Ukraine|Kiew
RU|Russland|Moskau
EE|Estland|Tallinn
LV|Lettland|Riga
LT|Litauen|Vilnius
US|Vereinigte Staaten|Washington, D.C.
CA|Kanada|Ottawa
MX|Mexiko|Mexiko-Stadt
BR|Brasilien|Brasília
AR|Argentinien|Buenos Aires
CL|Chile|Santiago de Chile
PE|Peru|Lima
CO|Kolumbien|Bogotá
JP|Japan|Tokio
CN|China|Peking
IN|Indien|Neu-Delhi
KR|Südkorea|Seoul
ID|Indonesien|Jakarta
TH|Thailand|Bangkok
VN|Vietnam|Hanoi
SA|Saudi-Arabien|Riad
IR|Iran|Teheran
EG|Ägypten|Kairo
MA|Marokko|Rabat
KE|Kenia|Nairobi
NG|Nigeria|Abuja
ZA|Südafrika|Pretoria
NA|Namibia|Windhoek
CI|Elfenbeinküste|Yamoussoukro
AU|Australien|Canberra
NZ|Neuseeland|Wellington
""")

#: Other ways to write an English short name: one as in a brochure, one as in a register.
OTHER_NAMES = {
    name: (brochure, register)
    for name, brochure, register in records("""
China|PR China|People's Republic of China
Czechia|Czech Republic|Czech Rep.
Côte d'Ivoire|Ivory Coast|Cote d'Ivoire
Iran|Persia (Iran)|Iran, Islamic Republic of
Netherlands|Holland|The Netherlands
New Zealand|Aotearoa New Zealand|N. Zealand
Philippines|The Philippines|Phillipines
Russia|Russian Federation|Russian Fed.
Saudi Arabia|Kingdom of Saudi Arabia|KSA
Slovakia|Slovak Republic|Slovak Rep.
South Africa|Rep. of South Africa|RSA
South Korea|Korea (South)|Korea, Republic of
Tanzania|Tanzania & Zanzibar|Tanzania, United Republic of
Turkey|Türkiye|Turkiye
United Arab Emirates|The Emirates|UAE
United Kingdom|Great Britain|UK
United States|U.S.A.|USA
Vietnam|Viet Nam|Viet Nam
""")
}

#: Slips of the pen, as they creep into systems where people type.
TYPOS = dict(
    records("""
Argentina|Argentinia
Belgium|Belguim
Colombia|Columbia
Finland|Finnland
Malaysia|Malasia
Morocco|Marocco
Portugal|Portugual
Switzerland|Swizerland
""")
)
